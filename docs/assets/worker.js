// Lets the search work in pages that are read from the disk: there a browser starts no worker, so its script runs in a
// hidden frame instead. The theme looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = null;
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const load = src => new Promise((done, fail) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src: new URL(src, document.baseURI).href, onload: done, onerror: fail });
        inside.document.head.append(script);
      });
      inside.postMessage = data => this.tell(new MessageEvent("message", { data }));
      inside.importScripts = async (...sources) => { for (const src of sources) await load(src); };
      load(url).then(() => {
        this.inside = inside;
        for (const data of this.waiting.splice(0)) this.postMessage(data);
      }, () => this.tell(new Event("error")));
    }

    postMessage(data) {
      if (this.inside === undefined) this.waiting.push(data);
      else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }

    tell(event) {
      this.dispatchEvent(event);
      this["on" + event.type]?.(event);
    }

    terminate() {}
  };
}
