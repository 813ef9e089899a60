// A table that is updated in place: a row belongs to a key, and only the cells that changed are written. So nothing is
// lost while it lives: focus, selection, scroll, the order that was chosen, the rows that were opened.
//
// A column: label, value(row) to sort by, text(row) to show; and where wanted sub(row), a second line; tone(row), for a
// word with a colour; share(row), from 0 to 1, for a bar; numeric; title, what the label means.
// A table: label, columns, key(row), detail(row) for what a click on its first cell opens: [label, text] each; and
// lines, a label and load(row) for lines of text below that, which come later; and actions(row), elements below that: what changes something should
// be some clicks away.

import { NOTHING, isNumber } from "./format.js";

export function make(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) made.setAttribute(key, value);
  }
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

export class Table {
  #heads = new Map();
  #rows = new Map(); // by key: {line, cells, detail, row}
  #open = new Set();
  #given = [];
  #filter = "";

  constructor({ label, columns, key, detail, lines, actions, sort, empty, fold, role }) {
    Object.assign(this, { label, columns, key, detail, lines, actions, fold });
    this.sort = sort ?? null; // {column, isDown}
    this.count = make("span", { class: "quiet" });
    this.body = make("tbody");
    this.empty = make("p", { class: "empty", text: empty ?? "Nothing here." });
    const heads = columns.map((column) => this.#head(column));
    this.table = make("table", { role }, make("caption", { class: "unseen", text: label }),
      make("thead", {}, make("tr", {}, ...heads)), this.body);
    this.frame = make("div", { class: "frame", tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.element = make("section", { class: "block" }, this.frame, this.empty);
    this.table.addEventListener("keydown", (event) => this.#walk(event));
    this.#tellSort();
  }

  // With a heading: where a view has several tables.
  headed() {
    this.element.prepend(make("h2", { text: `${this.label} ` }, this.count));
    return this;
  }

  update(rows, filter) {
    this.#given = rows;
    this.#filter = filter;
    this.#show();
  }

  #show() {
    const wanted = this.#sorted(this.#matching(this.#given, this.#filter));
    const seen = new Set();
    const lines = [];
    for (const row of wanted) {
      const key = unique(seen, this.key(row));
      const kept = this.#rows.get(key) ?? this.#begin(key);
      this.#fill(kept, row);
      lines.push(kept.line);
      if (kept.detail) lines.push(kept.detail);
    }
    for (const [key, kept] of this.#rows) {
      if (!seen.has(key)) {
        kept.line.remove();
        kept.detail?.remove();
        this.#rows.delete(key);
      }
    }
    arrange(this.body, lines);
    const isShort = wanted.length < this.#given.length;
    write(this.count, isShort ? `${wanted.length} of ${this.#given.length}` : String(this.#given.length));
    this.frame.hidden = wanted.length === 0;
    this.empty.hidden = wanted.length > 0;
    this.empty.dataset.filtered = isShort;
  }

  #matching(rows, filter) {
    const asked = filter.toLowerCase().split(/\s+/).filter(Boolean);
    if (!asked.length || this.fold) return rows; // a tree filters by itself: it knows the way to what it shows
    return rows.filter((row) => {
      const said = this.columns.map((one) => `${one.text(row)} ${one.sub?.(row) ?? ""}`).join(" ").toLowerCase();
      return asked.every((word) => said.includes(word));
    });
  }

  #sorted(rows) {
    if (!this.sort) return rows;
    const { column, isDown } = this.sort;
    const value = this.columns.find((one) => one.label === column).value;
    const known = (one) => one !== null && one !== undefined && one !== "";
    return rows.map((row, place) => ({ row, place, by: value(row) })).sort((a, b) => {
      if (known(a.by) !== known(b.by)) return known(a.by) ? -1 : 1; // what is not known comes last, either way
      const order = isNumber(a.by) && isNumber(b.by) ? a.by - b.by : String(a.by).localeCompare(String(b.by), "en", { numeric: true });
      return (isDown ? -order : order) || a.place - b.place;
    }).map((one) => one.row);
  }

  #head(column) {
    const head = make("th", { scope: "col", class: column.numeric ? "number" : undefined, title: column.title });
    if (this.fold) {
      head.textContent = column.label; // a tree has an order of its own
    } else {
      const button = make("button", { type: "button", text: column.label });
      button.addEventListener("click", () => this.#sortBy(column));
      head.append(button);
    }
    this.#heads.set(column.label, head);
    return head;
  }

  #sortBy(column) {
    const isSame = this.sort?.column === column.label;
    this.sort = { column: column.label, isDown: isSame ? !this.sort.isDown : Boolean(column.numeric) };
    this.#tellSort();
    this.#show();
  }

  #tellSort() {
    for (const [label, head] of this.#heads) {
      if (this.sort?.column === label) head.setAttribute("aria-sort", this.sort.isDown ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  #begin(key) {
    const cells = this.columns.map((column, place) => new Cell(column, place === 0));
    const kept = { key, cells, line: make("tr", {}, ...cells.map((one) => one.element)), detail: null, row: null };
    if (this.detail) {
      const opener = make("button", { type: "button", class: "opener", "aria-expanded": "false" });
      opener.addEventListener("click", () => this.#toggle(kept));
      cells[0].wrapIn(opener);
      kept.opener = opener;
    }
    if (this.fold) {
      kept.twisty = make("button", { type: "button", class: "twisty" });
      kept.twisty.addEventListener("click", () => this.fold.toggle(kept.row));
      cells[0].element.prepend(kept.twisty);
    }
    this.#rows.set(key, kept);
    return kept;
  }

  #fill(kept, row) {
    const before = kept.row;
    kept.row = row;
    if (!before && this.#open.has(kept.key)) this.#toggle(kept, true);
    kept.cells.forEach((cell) => cell.show(row));
    if (kept.detail) describe(kept.facts, this.detail(row));
    if (this.fold) this.#placeInTree(kept, row);
    if (before && (row.restarts ?? 0) > (before.restarts ?? 0)) blink(kept.line);
  }

  #placeInTree(kept, row) {
    kept.line.setAttribute("aria-level", row.depth + 1);
    kept.line.style.setProperty("--depth", row.depth);
    const isOpen = this.fold.isOpen(row); // undefined: there is nothing below
    kept.twisty.hidden = isOpen === undefined;
    kept.opener.disabled = Boolean(row.more);
    if (isOpen === undefined) return kept.line.removeAttribute("aria-expanded");
    kept.line.setAttribute("aria-expanded", isOpen);
    kept.twisty.setAttribute("aria-label", `${isOpen ? "Fold" : "Unfold"} ${row.label}`);
    kept.twisty.setAttribute("aria-expanded", isOpen);
  }

  #toggle(kept, isOpen = !kept.detail) {
    kept.opener.setAttribute("aria-expanded", isOpen);
    if (!isOpen) {
      this.#open.delete(kept.key);
      kept.detail?.remove();
      kept.detail = null;
      return;
    }
    this.#open.add(kept.key);
    kept.facts = make("dl", { class: "facts" });
    kept.said = make("figure", { class: "said" }, make("figcaption"), make("pre"));
    kept.detail = make("tr", { class: "detail" }, make("td", { colspan: this.columns.length }, kept.facts, kept.said, ...(this.actions?.(kept.row) ?? [])));
    describe(kept.facts, this.detail(kept.row));
    this.#load(kept);
    if (kept.line.isConnected) kept.line.after(kept.detail);
  }

  async #load(kept) {
    kept.said.hidden = true;
    const lines = (await this.lines?.load(kept.row).catch(() => [])) ?? [];
    write(kept.said.firstChild, this.lines?.label ?? "");
    write(kept.said.lastChild, lines.join("\n"));
    kept.said.hidden = !lines.length;
  }

  // Arrows go from row to row, and fold.
  #walk(event) {
    const line = event.target.closest("tbody tr");
    if (!line) return;
    const ways = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in ways) {
      const openers = [...this.body.querySelectorAll(".opener")];
      const here = openers.indexOf(line.querySelector(".opener"));
      const next = openers[here + ways[event.key]];
      if (here >= 0 && next) {
        next.focus();
        event.preventDefault();
      }
    } else if (this.fold && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const kept = [...this.#rows.values()].find((one) => one.line === line);
      if (kept && this.fold.isOpen(kept.row) === (event.key === "ArrowLeft")) {
        this.fold.toggle(kept.row);
        event.preventDefault();
      }
    }
  }
}

class Cell {
  #was = null;
  #sub = null;
  #bar = null;

  constructor(column, isFirst) {
    this.column = column;
    this.main = make("span", { class: column.tone ? "badge" : "main" });
    this.element = isFirst ? make("th", { scope: "row" }) : make("td", { class: column.numeric ? "number" : undefined });
    this.element.append(this.main);
  }

  wrapIn(button) {
    this.main.replaceWith(button);
    button.append(this.main);
  }

  show(row) {
    const { text, sub, tone, share } = this.column;
    const now = [text(row), sub?.(row) ?? "", tone?.(row) ?? "", share?.(row) ?? ""];
    const signed = now.join("\u0000");
    if (signed === this.#was) return;
    this.#was = signed;
    const [said, below, colour, part] = now;
    write(this.main, said);
    this.main.title = said.length > 24 ? said : "";
    if (said === NOTHING) this.element.dataset.none = "";
    else delete this.element.dataset.none;
    if (tone) {
      this.main.dataset.tone = colour;
      this.main.hidden = !colour;
    }
    if (sub) {
      this.#sub ??= this.element.appendChild(make("span", { class: "sub" }));
      write(this.#sub, below);
      this.#sub.title = below.length > 40 ? below : "";
      this.#sub.hidden = !below;
    }
    if (share) {
      this.#bar ??= this.element.appendChild(make("span", { class: "meter", "aria-hidden": "true" }, make("i")));
      this.#bar.hidden = !(part > 0.01); // a bar that nobody sees is noise
      this.#bar.firstChild.style.width = `${100 * Math.min(1, Math.max(0, part || 0))}%`;
      this.#bar.dataset.full = part > 0.8;
    }
  }
}

export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Terms and what they are, written anew only where they changed.
export function describe(list, pairs) {
  const signed = JSON.stringify(pairs);
  if (list.signed === signed) return;
  list.signed = signed;
  list.replaceChildren(...pairs.map(([term, said]) => make("div", {}, make("dt", { text: term }), make("dd", { text: said }))));
}

// Children in this order, with as few moves as that takes; what had the focus keeps it.
function arrange(body, lines) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  let at = body.firstChild;
  for (const line of lines) {
    if (line === at) at = at.nextSibling;
    else body.insertBefore(line, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

function unique(seen, key) {
  let found = key;
  for (let number = 2; seen.has(found); number += 1) found = `${key}#${number}`;
  seen.add(found);
  return found;
}

function blink(line) {
  line.classList.remove("blink");
  void line.offsetWidth; // so that it begins again
  line.classList.add("blink");
}
