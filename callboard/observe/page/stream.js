// Views as they come, once a second. A lost connection is tried again for as long as the page is open.

const FIRST = 1000; // milliseconds until the first attempt; each further one waits twice as long
const MOST = 8000;
const SILENT = 6000; // without a view for so long, something is wrong, whatever the connection says
const UNSEEN = 60_000; // after so long in the background the server need not send any more

export class Stream {
  #source = null;
  #wait = FIRST;
  #timer = 0;
  #watch = 0;

  constructor(address, { onView, onLost }) {
    Object.assign(this, { address, onView, onLost });
    document.addEventListener("visibilitychange", () => this.#seen());
    this.#open();
  }

  #open() {
    this.#close();
    this.#source = new EventSource(this.address);
    this.#source.onmessage = (event) => this.#hear(event);
    this.#source.onerror = () => this.#again();
    this.#await();
  }

  #hear(event) {
    this.#wait = FIRST;
    this.#await();
    this.onView(JSON.parse(event.data));
  }

  #await() {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => this.#again(), SILENT);
  }

  #again() {
    this.#close();
    this.onLost();
    this.#timer = setTimeout(() => this.#open(), this.#wait);
    this.#wait = Math.min(2 * this.#wait, MOST);
  }

  #close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#source?.close();
    this.#source = null;
  }

  #seen() {
    if (document.hidden) {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#close(), UNSEEN);
    } else if (!this.#source) {
      this.#wait = FIRST;
      this.#open();
    } else {
      clearTimeout(this.#timer);
    }
  }
}
