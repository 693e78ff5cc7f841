// Formatting of numbers, times and states. An unknown value is never shown as 0.

import { h } from "./dom.js";

const THIN = "\u202f";
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

// Larger numbers cannot be drawn.
const NUMBER_MAX = 1e300;
export const known = (value) => typeof value === "number" && Math.abs(value) < NUMBER_MAX;
export const total = (list, of = (one) => one) => list.reduce((sum, one) => sum + (of(one) || 0), 0);
export const whole = (value) => grouped.format(value).replaceAll(",", THIN);
export const count = (value, one, many = `${one}s`) => `${whole(value)} ${value === 1 ? one : many}`;
const short = (value, digits = 3) => String(Number(value.toPrecision(digits)));

// A number with three significant digits, or all of a whole number below a million.
export function number(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return whole(value);
  if (size < 1e-3 || size >= 1e15) return value.toExponential(2);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) if (size >= unit) return `${short(value / unit)}${THIN}${name}`;
  return size >= 1000 ? whole(value) : short(value);
}

// The value of a solution, with enough digits for comparisons.
export function exact(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 1e9 || Math.abs(value) < 1e-3) return number(value);
  const [integer, fraction] = short(value, 9).split(".");
  return (integer === "-0" ? "-0" : whole(integer)) + (fraction ? `.${fraction.slice(0, 3)}` : "");
}

// Shares below 1 are never rounded up to 100 %.
export function percent(share) {
  const value = share * 100;
  const shown = share < 1 && value >= 99.95 ? "> 99.9" : value.toFixed(value === 0 || value >= 99.95 ? 0 : value < 1 ? 2 : 1);
  return `${shown}${THIN}%`;
}

export function bytes(value) {
  const unit = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${short(value / 1024 ** unit)}${THIN}${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

export function duration(seconds) {
  const digits = (value, unit) => `${short(value, 2)}${THIN}${unit}`;
  if (seconds <= 0) return `0${THIN}s`;
  if (seconds < 0.000995) return digits(seconds * 1e6, "µs");
  if (seconds < 0.995) return digits(seconds * 1e3, "ms");
  if (seconds < 9.95) return digits(seconds, "s");
  const s = Math.round(seconds);
  const at = UNITS.findIndex(([unit]) => s >= unit);
  const [unit, name] = UNITS[at];
  const [next, nextName] = UNITS[at + 1] ?? [1, ""];
  const rest = Math.floor((s % unit) / next);
  return `${Math.floor(s / unit)}${THIN}${name}${rest > 0 ? ` ${rest}${THIN}${nextName}` : ""}`;
}

// The range of an estimated time.
export const between = ({ least_seconds: least, most_seconds: most }) => `${duration(least)} to ${duration(most)}`;

// The clock of a node may be arbitrarily wrong.
export const isTime = (ms) => Math.abs(ms) < 8e15;
// A local time, in the format of UTC.
export const local = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString();

// A time of day, with the date if it is not that of `now`.
export function clock(ms, now = ms, seconds = true) {
  if (!isTime(ms) || !isTime(now)) return "–";
  const [day, time] = local(ms).split("T");
  return `${day === local(now).slice(0, 10) ? "" : `${day} `}${time.slice(0, seconds ? 8 : 5)}`;
}

export function moment(ms, now, seconds) {
  if (!isTime(ms)) return unknown("its clock says what is no time");
  const utc = new Date(ms).toISOString();
  return h("time", { datetime: utc, title: `${utc.slice(0, 19).replace("T", " ")} UTC` }, clock(ms, now, seconds));
}

export const hidden = (text) => h("span", { class: "hidden" }, text);
export const sign = (text, kind = "") => h("span", { class: `sign ${kind}`, "aria-hidden": "true" }, text);
export const unknown = (why) => h("span", { class: "unknown", title: why }, h("span", { "aria-hidden": "true" }, "–"), hidden(`unknown: ${why}`));

// A number by `format`, or a dash with the reason why it is unknown.
export const maybe = (value, format, why) => (known(value) ? format(value) : unknown(why));

// The upper limit of a histogram class, in seconds: the classes grow by the square root of 2.
export const classEnd = (at) => 7.812e-6 * Math.SQRT2 ** at;

// A quantile of a histogram; null if it is empty.
export function quantile(classes, share) {
  let wanted = share * total(classes ?? []);
  const at = (classes ?? []).findIndex((times) => times > 0 && (wanted -= times) <= 0);
  return at < 0 ? null : classEnd(at);
}

const GOOD = ["●", "good"], WAITS = ["◌", "wait"], OVER = ["✓", "over"], GONE = ["○", "over"], WARN = ["▲", "warn"], BAD = ["✕", "bad"];
const STATES = {
  abandoned: BAD, running: GOOD, waiting: WAITS, no_nodes: WARN, done: OVER, incomplete: WARN, failed: BAD,
  cancelled: GONE, cordoned: WARN, unreadable: BAD, member: GOOD, left: GONE, lost: BAD, answers: GOOD, silent: BAD,
};
const WORDS = { waiting: "waits for jobs", no_nodes: "waits for nodes" };

// A state as a symbol, a word and a colour, so that the information does not depend on the colour.
export function state(name) {
  const [symbol, kind] = STATES[name] ?? WAITS;
  return h("span", { class: `state ${kind}` }, sign(symbol), WORDS[name] ?? name);
}

export const isOver = (stage) => ["done", "incomplete", "failed", "cancelled"].includes(stage);

// A share of a whole as a bar, next to its number.
export const meter = (share, kind = "") => h("span", { class: `meter ${kind}`, "aria-hidden": "true" }, h("span", { style: { width: `${Math.min(100, share * 100).toFixed(2)}%` } }));
