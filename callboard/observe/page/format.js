// Numbers and names as a person reads them. Every name on this page is somebody else's: it is shown as text, and what
// would command a terminal, turn the line round or hide is shown as its code.

const MOST = 400; // characters of a name; the server sends fewer

// Control characters, and those that change direction or take no room.
const ODD = /[\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\p{Cs}]/gu;

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const NOTHING = "–";

export function name(text) {
  if (text === null || text === undefined || text === "") return NOTHING;
  const plain = String(text).replace(ODD, (odd) => `\\u${odd.codePointAt(0).toString(16).padStart(4, "0")}`);
  return plain.length > MOST ? `${plain.slice(0, MOST)}…` : plain;
}

export function count(number) {
  return isNumber(number) ? whole.format(number) : NOTHING;
}

// Of few, tenths matter.
export function rate(number) {
  return isNumber(number) ? (number < 10 ? tenth : whole).format(number) : NOTHING;
}

export function percent(share) {
  if (!isNumber(share)) return NOTHING;
  return `${(share > 0 && share < 0.1 ? tenth : whole).format(100 * share)} %`;
}

// Three digits and a unit.
export function seconds(number) {
  if (!isNumber(number)) return NOTHING;
  if (number < 1e-3) return `${digits(number * 1e6)} µs`;
  if (number < 1) return `${digits(number * 1e3)} ms`;
  return number < 60 ? `${digits(number)} s` : time(number);
}

// How long something lasts, or is ago: two units.
export function time(number) {
  if (!isNumber(number)) return NOTHING;
  const all = Math.max(0, Math.floor(number));
  if (all < 60) return `${all} s`;
  if (all < 3600) return two(all, 60, "min", 1, "s");
  return all < 86400 ? two(all, 3600, "h", 60, "min") : two(all, 86400, "d", 3600, "h");
}

export function ago(number) {
  return isNumber(number) ? (number < 1 ? "now" : `${time(number)} ago`) : NOTHING;
}

export function bytes(number) {
  if (!isNumber(number)) return NOTHING;
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (number >= size) return `${digits(number / size)} ${unit}`;
  }
  return `${number} B`;
}

// A fact of an actor: it is small, but of any kind.
export function fact(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (!isNumber(value)) return name(value);
  return Math.abs(value) > 1e8 && !Number.isInteger(value) ? "none" : tenth.format(value); // a deadline of ten years
}

export function plural(many, word) {
  return isNumber(many) ? `${count(many)} ${word}${many === 1 ? "" : "s"}` : NOTHING;
}

export function words(key) {
  return name(key).replaceAll("_", " ");
}

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function digits(number) {
  return number >= 100 ? whole.format(number) : number >= 10 ? tenth.format(number) : String(Number(number.toFixed(2)));
}

function two(all, size, unit, less, smaller) {
  const rest = Math.floor((all % size) / less);
  return rest ? `${Math.floor(all / size)} ${unit} ${rest} ${smaller}` : `${Math.floor(all / size)} ${unit}`;
}
