// Numbers, times and states as people read them. What is unknown is never shown as 0.

import { h } from "./dom.js";

const THIN = "\u202f";
const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const known = (value) => typeof value === "number" && Number.isFinite(value);

// A whole number, its digits in groups of three.
export const whole = (value) => grouped.format(value).replaceAll(",", THIN);

// A number with three significant digits, or all of a whole number up to a million.
export function number(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return whole(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential(2);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))}${THIN}${name}`;
  }
  return size >= 1000 ? whole(Math.round(value)) : String(Number(value.toPrecision(3)));
}

// A value of a solution: as exact as people compare it.
export function exact(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 1e9 || Math.abs(value) < 1e-3) return number(value);
  const [integer, fraction] = String(Number(value.toPrecision(9))).split(".");
  return whole(Number(integer)) + (fraction ? `.${fraction.slice(0, 3)}` : "");
}

export function percent(share) {
  const value = share * 100;
  const digits = value === 0 || value >= 99.95 ? 0 : value < 1 ? 2 : 1;
  // What is not all of it is not shown as if it were.
  const shown = share < 1 && value >= 99.95 ? "> 99.9" : value.toFixed(digits);
  return `${shown}${THIN}%`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; unit += 1) value /= 1024;
  return `${Number(value.toPrecision(3))}${THIN}${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return `0${THIN}s`;
  if (seconds < 1e-3) return `${Number((seconds * 1e6).toPrecision(2))}${THIN}µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(2))}${THIN}ms`;
  if (seconds < 9.95 && !Number.isInteger(seconds)) return `${seconds.toFixed(1)}${THIN}s`;
  const s = Math.round(seconds);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([unit]) => s >= unit);
  return parts
    .slice(first, first + 2)
    .map(([unit, name], at) => [Math.floor((at ? s % parts[first][0] : s) / unit), name])
    .filter(([value], at) => at === 0 || value > 0)
    .map(([value, name]) => `${value}${THIN}${name}`)
    .join(" ");
}

export const count = (value, one, many = `${one}s`) => `${whole(value)} ${value === 1 ? one : many}`;

const two = (value) => String(value).padStart(2, "0");

// A time of day; with the day if it is not that of `now`.
export function clock(ms, now = ms, seconds = true) {
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  if (at.toDateString() === new Date(now).toDateString()) return time;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

export function moment(ms, now = ms, seconds = true) {
  const iso = new Date(ms).toISOString();
  const utc = `${iso.slice(0, 19).replace("T", " ")} UTC`;
  return h("time", { datetime: iso, title: utc }, clock(ms, now, seconds));
}

export function unknown(why) {
  return h("span", { class: "unknown", title: why }, h("span", { "aria-hidden": "true" }, "–"), h("span", { class: "hidden" }, `unknown: ${why}`));
}

// A number in words of `format`, or a dash that says why it is not known.
export const maybe = (value, format, why) => (known(value) ? format(value) : unknown(why));

// The middle (or another quantile) of a histogram whose classes grow by the square root of 2; null if it is empty.
export function quantile(classes, share) {
  const total = (classes ?? []).reduce((sum, times) => sum + times, 0);
  let seen = 0;
  for (let at = 0; total > 0 && at < classes.length; at += 1) {
    seen += classes[at];
    if (classes[at] > 0 && seen >= share * total) return classEnd(at);
  }
  return null;
}

export const classEnd = (at) => 7.812e-6 * Math.SQRT2 ** at;

const STAGES = {
  submitting: ["submitting", "wait"], abandoned: ["abandoned", "bad"], running: ["running", "good"],
  queued: ["queued", "wait"], waiting: ["waits for jobs", "wait"], no_nodes: ["waits for nodes", "warn"],
  suspended: ["suspended", "wait"], done: ["done", "over"], incomplete: ["incomplete", "warn"],
  failed: ["failed", "bad"], cancelled: ["cancelled", "over"], unreadable: ["unreadable", "bad"],
  member: ["member", "good"], left: ["left", "over"], lost: ["lost", "bad"], draining: ["leaving", "wait"],
};
const SIGNS = { good: "●", wait: "◌", over: "✓", warn: "▲", bad: "✕" };

// A state by a sign, a word and a colour, so that the colour alone says nothing.
export function state(name) {
  const [text, kind] = STAGES[name] ?? [String(name), "wait"];
  const sign = name === "cancelled" || name === "left" ? "○" : SIGNS[kind];
  return h("span", { class: `state ${kind}` }, h("span", { "aria-hidden": "true", class: "sign" }, sign), text);
}

// A key of a list by which one sees whether it has changed.
export const isOver = (stage) => ["done", "incomplete", "failed", "cancelled"].includes(stage);

// A share of a whole as a bar; its number stands beside it.
export function meter(share, kind = "") {
  const width = `${(Math.min(1, Math.max(0, share)) * 100).toFixed(2)}%`;
  return h("span", { class: `meter ${kind}`, "aria-hidden": "true" }, h("span", { style: { width } }));
}
