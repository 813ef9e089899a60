// The supervision tree: what is unfolded, as rows one below the other.

import * as show from "./format.js";
import { Table } from "./table.js";
import { toneOf } from "./tones.js";

const FEW = 12; // children up to which a branch of the root is open at first

export class Tree {
  #folded = new Map(); // by path, what somebody chose
  #latest = null;
  #filter = "";

  constructor() {
    this.table = new Table({
      label: "Supervision tree",
      role: "treegrid",
      empty: "No actor has a path like that.",
      key: (row) => row.path,
      fold: { isOpen: (row) => row.isOpen, toggle: (row) => this.#toggle(row) },
      columns: [
        { label: "Actor", text: (row) => row.label, sub: (row) => row.kind, value: (row) => row.label },
        { label: "State", text: (row) => row.state, tone: (row) => row.state && toneOf(row.state),
          sub: (row) => (row.worst ? `below: ${row.worst}` : "") },
        { label: "Mailbox", numeric: true, title: "Messages that wait, of those that fit",
          text: ({ mailbox }) => (mailbox ? `${show.count(mailbox[0])} / ${show.count(mailbox[1])}` : ""),
          share: ({ mailbox }) => (mailbox ? mailbox[0] / mailbox[1] : "") },
        { label: "Handled", numeric: true, text: ({ mailbox }) => (mailbox ? show.count(mailbox[2]) : "") },
        { label: "Restarts", numeric: true, text: (row) => (row.restarts ? show.count(row.restarts) : "") },
        { label: "Age", numeric: true, text: (row) => (row.more ? "" : show.time(row.age)) },
        { label: "Last failure", text: (row) => (row.failure ? show.name(row.failure) : "") },
      ],
      detail: (row) => [
        ["path", row.path],
        ...Object.entries(row.facts ?? {}).map(([key, value]) => [show.words(key), show.fact(value)]),
        ...(row.failure ? [["last failure", show.name(row.failure)]] : []),
      ],
    });
    this.element = this.table.element;
  }

  update(view, filter) {
    this.#latest = view.tree;
    this.#filter = filter.trim().toLowerCase();
    const rows = [];
    if (view.tree) this.#walk(view.tree, "", 0, rows);
    this.table.update(rows, filter);
  }

  #toggle(row) {
    this.#folded.set(row.path, !row.isOpen);
    this.update({ tree: this.#latest }, this.#filter);
  }

  // Adds the node and what is open below it. With a filter: the matches, and the way to them.
  #walk(node, above, depth, rows) {
    const path = `${above}/${show.name(node.name)}`;
    const row = { ...node, path, depth, label: show.name(node.name), kind: show.name(node.kind), state: show.name(node.state) };
    const hasBelow = Boolean(node.children?.length || node.hidden);
    const isMatch = Boolean(this.#filter) && path.toLowerCase().includes(this.#filter);
    const start = rows.length;
    rows.push(row);
    row.isOpen = hasBelow ? this.#isOpen(node, path, depth) : undefined;
    if (row.isOpen || this.#filter) {
      for (const child of node.children ?? []) this.#walk(child, path, depth + 1, rows);
    }
    if (this.#filter) {
      const isWay = rows.length > start + 1;
      if (!isMatch && !isWay) rows.length = start;
      row.isOpen = hasBelow ? isWay : undefined;
    } else if (row.isOpen === false) {
      row.worst = worst(node);
    } else if (row.isOpen && node.hidden) {
      rows.push({ path: `${path}/…`, depth: depth + 1, label: `+ ${show.count(node.hidden)} more`, kind: "", state: "", more: true });
    }
  }

  #isOpen(node, path, depth) {
    return this.#folded.get(path) ?? (depth === 0 || (depth === 1 && (node.children?.length ?? 0) <= FEW));
  }
}

// The state that somebody should see although its branch is folded.
function worst(node) {
  let found = "";
  for (const child of node.children ?? []) {
    const tone = toneOf(child.state);
    const below = tone === "bad" || tone === "warn" ? show.name(child.state) : worst(child);
    if (toneOf(below) === "bad") return below;
    found ||= below;
  }
  return found;
}
