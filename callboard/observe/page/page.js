// The page: its head, its figures, and the one view that is looked at. The others are not drawn.

import { allow } from "./actions.js";
import { Figures } from "./figures.js";
import * as show from "./format.js";
import { Stream } from "./stream.js";
import { describe, make, write } from "./table.js";
import { toneOf } from "./tones.js";
import { VIEWS } from "./views.js";

const find = (id) => document.getElementById(id);
const figures = new Figures(find("figures"));
const places = VIEWS.map((view) => place(view));
let latest = null; // the newest view
let shown = null; // the one on the screen: an older one while it is paused
let isPaused = false;
let chosen = null;

function place(view) {
  const badge = make("span", { class: "count" });
  const tab = make("button", { type: "button", role: "tab", id: `tab-${view.id}`, "aria-controls": `panel-${view.id}` }, view.label, badge);
  const panel = make("div", { role: "tabpanel", id: `panel-${view.id}`, "aria-labelledby": tab.id });
  tab.addEventListener("click", () => choose(view.id));
  panel.hidden = true;
  find("tabs").append(tab);
  find("view").append(panel);
  return { view, tab, badge, panel, tables: null };
}

function choose(id) {
  if (location.hash.slice(1) !== id) history.replaceState(null, "", `#${id}`);
  chosen = id;
  draw();
  reveal();
}

// On a narrow page some tabs are beside it: the one that is chosen comes to its middle.
function reveal() {
  const { tab } = current();
  const tabs = find("tabs");
  tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
}

// The view that was asked for, or the first that this server has.
function current() {
  const some = places.filter(({ tab }) => !tab.hidden);
  return some.find(({ view }) => view.id === chosen) ?? some[0];
}

function draw() {
  for (const { view, tab } of places) tab.hidden = Boolean(shown && view.isShown && !view.isShown(shown));
  const here = current();
  for (const one of places) {
    const isHere = one === here;
    one.tab.setAttribute("aria-selected", isHere);
    one.tab.tabIndex = isHere ? 0 : -1;
    one.panel.hidden = !isHere;
    if (shown) badge(one);
  }
  if (!shown) return;
  here.tables ??= here.view.tables.map(([build, rows]) => {
    const table = build();
    here.panel.append(table.element);
    return [table, rows];
  });
  for (const [table, rows] of here.tables) table.update(rows(shown), find("filter").value);
}

function badge({ view, badge: element }) {
  const number = view.badge?.(shown);
  write(element, number ? (show.isNumber(number) ? show.count(number) : number) : "");
  element.dataset.tone = view.tone?.(shown) || "";
}

function drawAll() {
  head(shown);
  figures.show(shown);
  write(find("span"), `the last ${show.time(figures.span)}`);
  draw();
}

function head({ server }) {
  write(find("name"), show.name(server.name));
  write(find("version"), show.name(server.version));
  write(find("state"), show.name(server.state));
  find("state").dataset.tone = toneOf(server.state);
  const away = shown.totals.servers - shown.totals.servers_up;
  document.title = `${away ? `${away} down · ` : server.state === "ready" ? "" : `${show.name(server.state)} · `}${show.name(server.name)}`;
  describe(find("about"), [
    ["up", show.time(server.uptime)],
    ["pid", String(server.pid)],
    ...(server.workers ? [["workers", workers(server.workers)]] : []),
    ["revisions", revisions(server.revisions ?? [])],
    ...(server.listening ?? []).map((one) => [show.name(one.transport), show.name(one.url)]),
  ]);
}

function workers(all) {
  const silent = all.filter((one) => !one.answers).map((one) => show.name(one.name));
  return silent.length ? `${all.length}, no answer from ${silent.join(", ")}` : String(all.length);
}

function revisions(all) {
  return all.length > 2 ? `${show.name(all[0])} to ${show.name(all.at(-1))}` : all.map(show.name).join(", ");
}

function tell(text, tone) {
  write(find("news"), text);
  find("news").dataset.tone = tone;
}

function live() {
  document.body.classList.remove("stale");
  if (isPaused) tell(`paused at ${new Date(shown.at * 1000).toLocaleTimeString()}`, "warn");
  else tell("live", "good");
}

function pause() {
  isPaused = !isPaused;
  find("pause").setAttribute("aria-pressed", isPaused);
  write(find("pause"), isPaused ? "Go on" : "Pause");
  if (!latest) return;
  live();
  if (!isPaused) {
    shown = latest;
    drawAll();
  }
}

find("pause").addEventListener("click", pause);
find("filter").addEventListener("input", draw);
find("tabs").addEventListener("keydown", (event) => {
  const some = places.filter(({ tab }) => !tab.hidden);
  const at = some.indexOf(current());
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + some.length, Home: 0, End: some.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = some[to % some.length];
  choose(next.view.id);
  next.tab.focus();
});
addEventListener("keydown", (event) => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    find("filter").focus();
  } else if (event.key === "p") {
    pause();
  }
});
addEventListener("hashchange", follow);

// The address says which view. It may name something else on the page, too.
function follow() {
  const asked = location.hash.slice(1);
  if (VIEWS.some((view) => view.id === asked)) chosen = asked;
  draw();
  reveal();
}

follow();
new Stream(`${location.origin}${location.pathname}events`, {
  onView(view) {
    figures.take(view);
    latest = view;
    allow(view.actions);
    if (!isPaused || !shown) {
      shown = view;
      drawAll();
    }
    live();
  },
  onLost() {
    document.body.classList.add("stale");
    tell("connection lost, trying again", "bad");
  },
});
