// The big figures, each with its last ten minutes as a line.

import * as show from "./format.js";
import { make, write } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 160;
const HEIGHT = 34;
const MOST = 600; // points, one a second
const BUCKET = 4; // seconds that share one place: the highest is drawn
const LEAST = 60; // seconds that a line stands for at first

// What is shown of each number; least is the height of the line that counts as full, so that noise stays low.
const FIGURES = [
  { key: "requests", label: "Requests / s", say: show.rate, least: 5, below: ({ totals }) => `${show.count(totals.requests)} in all` },
  { key: "errors", label: "Errors / s", say: show.rate, least: 5, below: ({ totals }) => `${show.count(totals.errors)} in all`, tone: (now) => now > 0 && "bad" },
  { key: "p50", label: "Latency p50", say: show.seconds, least: 1e-3, below: ({ latest }) => both(latest, "p50"), value: ({ latest }) => latest.p50_10s },
  { key: "p99", label: "Latency p99", say: show.seconds, least: 1e-3, below: ({ latest }) => both(latest, "p99"), value: ({ latest }) => latest.p99_10s },
  { key: "in_flight", label: "In flight", say: show.count, least: 5, below: ({ totals }) => show.plural(totals.connections, "connection") },
  { key: "parked", label: "Parked", say: show.count, least: 5, below: () => "wait for an answer" },
  { key: "clients", label: "Clients", say: show.count, least: 5, below: ({ totals }) => show.plural(totals.subscriptions, "subscription") },
  { key: "servers_up", label: "Servers up", say: show.count, least: 1, of: ({ totals }) => totals.servers,
    below: ({ totals }) => (totals.servers_up < totals.servers ? `${totals.servers - totals.servers_up} not up` : "all up"),
    tone: (now, { totals }) => now < totals.servers && "bad", isShown: isBroker },
  { key: "overhead_p99", label: "Overhead p99", say: show.seconds, least: 1e-3, below: () => "time of our own", isShown: isBroker },
  { key: "loop_lag", label: "Loop lag", say: show.seconds, least: 0.01, below: () => "worst of a second", tone: (now) => now > 0.1 && "warn" },
  { key: "resident", label: "Memory", say: show.bytes, least: 2 ** 20, below: ({ server }) => (server.workers ? `${server.workers.length} workers` : "resident") },
  { key: "cpu", label: "CPU", say: show.percent, least: 0.1, below: ({ totals }) => `${show.time(totals.cpu_seconds)} used` },
];

function isBroker({ totals }) {
  return totals.servers > 0;
}

export class Figures {
  #cards = new Map();
  #history = {};
  #taken = 0; // points since the history came: places stay where they are while time goes on

  constructor(element) {
    this.element = element;
    for (const figure of FIGURES) {
      const card = new Card(figure, () => this.#history[figure.key] ?? []);
      this.#cards.set(figure.key, card);
      element.append(card.element);
    }
  }

  // Also while nobody wants to see it change.
  take(view) {
    if (view.history) {
      this.#history = view.history;
      this.#taken = 0;
      return;
    }
    this.#taken += 1;
    for (const [key, number] of Object.entries(view.point ?? {})) {
      const ring = (this.#history[key] ??= []);
      ring.push(number);
      if (ring.length > MOST) ring.shift();
    }
  }

  get span() {
    return Math.max(LEAST, this.#history.requests?.length ?? 0);
  }

  show(view) {
    const cards = [...this.#cards.values()];
    for (const card of cards) card.show(view, this.span, this.#taken);
    this.element.dataset.shown = cards.filter((one) => !one.element.hidden).length;
  }
}

class Card {
  constructor(figure, points) {
    this.figure = figure;
    this.points = points;
    this.value = make("span", { class: "value" });
    this.unit = make("span", { class: "unit" });
    this.below = make("p", { class: "below" });
    this.area = draw("path", { class: "area" });
    this.line = draw("path", { class: "line" });
    this.dot = draw("path", { class: "dot" });
    this.plot = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.plot.append(this.area, this.line, this.dot);
    this.element = make("div", { class: "card", "data-figure": figure.key },
      make("h2", { text: figure.label }), make("p", { class: "now" }, this.value, this.unit), this.below, this.plot);
    this.plot.addEventListener("pointermove", (event) => this.#point(event));
    this.plot.addEventListener("pointerleave", () => this.#say());
  }

  show(view, span, taken) {
    const { figure } = this;
    Object.assign(this, { view, span });
    this.element.hidden = Boolean(figure.isShown && !figure.isShown(view));
    this.#say();
    this.element.dataset.tone = figure.tone?.(this.number, view) || "";
    const { line, area } = paths(this.points(), span, figure.least, taken);
    change(this.line, line);
    change(this.area, area);
  }

  get number() {
    const { figure, view } = this;
    return figure.value ? figure.value(view) : this.points().at(-1);
  }

  #say() {
    const { figure, view } = this;
    if (!view) return;
    const [number, ...unit] = figure.say(this.number).split(" ");
    write(this.value, number);
    write(this.unit, figure.of ? ` / ${figure.of(view)}` : unit.length ? ` ${unit.join(" ")}` : "");
    write(this.below, figure.below(view));
    change(this.dot, "");
  }

  // What it was at the pointer, in place of the small line.
  #point(event) {
    if (!this.view) return;
    const box = this.plot.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    const back = Math.round((1 - share) * (this.span - 1));
    const number = this.points().at(-1 - back);
    write(this.below, `${this.figure.say(number)} · ${back ? show.ago(back) : "now"}`);
    change(this.dot, `M ${share * WIDTH} 0 V ${HEIGHT}`);
  }
}

// The line of a sparkline, and what lies below it. Seconds without a number are gaps.
export function paths(points, span, least, taken) {
  const shown = points.slice(-span);
  const most = shown.reduce((high, one) => (one > high ? one : high), least);
  const shift = (taken + MOST - shown.length) % BUCKET;
  const runs = [];
  let run = null;
  for (let first = -shift; first < shown.length; first += BUCKET) {
    const some = shown.slice(Math.max(0, first), first + BUCKET).filter(show.isNumber);
    if (!some.length) {
      run = null;
      continue;
    }
    if (!run) runs.push((run = []));
    const at = first <= 0 ? 0 : Math.min(first + BUCKET, shown.length) - 1; // so that both edges are reached
    const x = ((span - shown.length + at) / (span - 1)) * WIDTH;
    run.push([x, HEIGHT - 2 - (Math.max(...some) / most) * (HEIGHT - 5)]);
  }
  const spot = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const line = runs.map((one) => `M ${one.map(spot).join(" L ")}${one.length === 1 ? " h 1.5" : ""}`).join(" ");
  const area = runs.filter((one) => one.length > 1)
    .map((one) => `M ${one[0][0].toFixed(1)} ${HEIGHT} L ${one.map(spot).join(" L ")} L ${one.at(-1)[0].toFixed(1)} ${HEIGHT} Z`).join(" ");
  return { line, area };
}

function both(latest, key) {
  return `60 s: ${show.seconds(latest[`${key}_60s`])}`;
}

function draw(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function change(path, way) {
  if (path.getAttribute("d") !== way) path.setAttribute("d", way);
}
