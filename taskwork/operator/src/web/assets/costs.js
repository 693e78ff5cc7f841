// The costs of nodes: on the page Costs, and as figures of jobs and nodes on other pages. An unknown price is not 0.

import { chart, parts } from "./charts.js";
import { data, now } from "./data.js";
import { choice, choose, h } from "./dom.js";
import { jobs, release, spent } from "./model.js";
import { figures, grid, head, JOB, muted, nothing, numbers, panel, rare, WHY, words } from "./parts.js";
import { clock, count, duration, known, local, maybe, meter, number, percent, total, unknown, whole } from "./text.js";

const HOUR_LONG_MS = 3_600_000;
const HOURS_SHOWN = 48;
const NO_PRICE = "no node has a price: nodes name theirs by --label price=0.10/h,currency=EUR";

// Formats an amount of money, with more digits for smaller ones.
function amount(value, currency) {
  const digits = value !== 0 && Math.abs(value) < 1 ? 4 : 2;
  return new Intl.NumberFormat("en", { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: digits }).format(value);
}

// Amounts in different currencies are not added up.
const amounts = (money) => Object.entries(money ?? {}).map(([currency, value]) => amount(value, currency)).join(" + ");
const hasMoney = (money) => Object.keys(money ?? {}).length > 0;
export const paid = (money, why = NO_PRICE) => (hasMoney(money) ? amounts(money) : unknown(why));
// The sort key of tables: by currency first, since different ones cannot be compared.
function order(money) {
  const [first] = Object.entries(money ?? {});
  return first ? `${first[0]} ${first[1].toFixed(6).padStart(24, "0")}` : null;
}

const withoutPrice = (unpriced, nodes) => unpriced > 0 && `${whole(unpriced)} of ${count(nodes, "node")} ${unpriced === 1 ? "has" : "have"} no price`;
const list = (texts) => texts.filter(Boolean).join("; ");

// For nodes that went before they were seen as members, neither the time nor the price is known.
const UNSEEN = "its nodes went before this was observed";
const SOME_UNSEEN = "its nodes that were seen have no price, and others went before this was observed";
const isUnseen = ({ unseen = 0, nodes }) => unseen > 0 && unseen === nodes;
const seenTime = (of) => (of && !isUnseen(of) ? of.node_ms : null);
const whyNoTime = (of) => (of ? UNSEEN : WHY.reports);
const whyNoMoney = (of) => (!of ? WHY.reports : isUnseen(of) ? UNSEEN : of.unseen > 0 ? SOME_UNSEEN : "its nodes have no price");

// The costs of a job so far, as figures with notes.
export function costOfJob({ cost }) {
  const why = cost && !(cost.unseen > 0) ? NO_PRICE : whyNoMoney(cost);
  return [
    ["Cost", paid(cost?.money, why), cost && list([hasMoney(cost.an_hour) && `${amounts(cost.an_hour)} an hour now`, withoutPrice(cost.unpriced - (cost.unseen ?? 0), cost.nodes)])],
    ["Node time", maybe(seenTime(cost), (ms) => duration(ms / 1000), whyNoTime(cost)), cost && list([`of ${count(cost.nodes, "node")}`, cost.unseen > 0 && `${whole(cost.unseen)} of them went before this was observed, and ${cost.unseen === 1 ? "is" : "are"} not in it`])],
  ];
}

const PRICE = /^(\d*\.?\d+)\/h$/;
// Higher prices are mistakes; the accounting uses the same limit.
const PRICE_MAX = 1e6;

// The price of a node from its labels; null without one.
export function price(labels) {
  const [, value] = PRICE.exec(labels?.price ?? "") ?? [];
  return value !== undefined && Number(value) <= PRICE_MAX && /^[A-Z]{3}$/.test(labels.currency ?? "") ? { order: order({ [labels.currency]: Number(value) }), text: `${amount(Number(value), labels.currency)} an hour` } : null;
}

export const priceOf = (labels) => price(labels)?.text ?? unknown(labels?.price ? "its labels name no price that can be read" : "it names no price");

const idle = ({ node_ms: all, busy_ms: busy = 0, starting_ms: starting = 0, draining_ms: leaving = 0 }) => Math.max(0, all - busy - starting - leaving);
// Less than an hour is shown in minutes.
const inHours = (ms) => (ms > 0 && ms < HOUR_LONG_MS / 10 ? duration(ms / 1000) : `${number(ms / HOUR_LONG_MS)}\u202fh`);
const busyShare = ({ node_ms: all, busy_ms: busy = 0 }) => (all > 0 ? busy / all : null);

const DID = [["busy", "had tasks", "c1"], ["starting", "waited for the first task of a job", "c5"], ["draining", "were leaving", "c2"], ["idle", "had nothing to do", "c7"]];
const partOf = (of, kind) => (kind === "idle" ? idle(of) : (of[`${kind}_ms`] ?? 0));

// Sums hours by the value of `start(hour)`, the earliest first.
function sums(hours, start) {
  const found = new Map();
  for (const [hour, of] of hours) {
    const from = start(hour);
    const sum = found.get(from) ?? { from, node_ms: 0, busy_ms: 0, starting_ms: 0, draining_ms: 0, unpriced_ms: 0, money: {} };
    found.set(from, sum);
    for (const kind of ["node_ms", "busy_ms", "starting_ms", "draining_ms", "unpriced_ms"]) sum[kind] += of[kind] ?? 0;
    for (const [currency, value] of Object.entries(of.money ?? {})) sum.money[currency] = (sum.money[currency] ?? 0) + value;
  }
  return [...found.values()].sort((a, b) => a.from - b.from);
}

const midnight = (ms) => new Date(ms).setHours(0, 0, 0, 0);
const dayAfter = (ms) => new Date(ms).setDate(new Date(ms).getDate() + 1);

// The costs over time: a bar per hour or per day.
function costsOverTime({ hours, about }) {
  const all = Object.entries(hours).map(([hour, of]) => [Number(hour) * HOUR_LONG_MS, of]);
  const byDay = choice("costs by", all.length > HOURS_SHOWN ? "day" : "hour") === "day";
  const end = byDay ? dayAfter : (ms) => ms + HOUR_LONG_MS;
  const bars = byDay ? sums(all, midnight) : sums(all.filter(([hour]) => hour > now() - HOURS_SHOWN * HOUR_LONG_MS), (hour) => hour);
  if (bars.length === 0) return nothing("Nothing was observed yet.");
  const to = end(bars.at(-1).from);
  const x = [Math.min(bars[0].from, to - (byDay ? 7 * 24 : 6) * HOUR_LONG_MS), to];
  const option = (kind, name) => h("label", { class: (kind === "day") === byDay ? "on" : "" }, h("input", { type: "radio", name: "costs by", checked: (kind === "day") === byDay, onchange: () => choose("costs by", kind) }), name);
  const of = {
    level: "h2", group: "costs", xs: bars.map((bar) => bar.from), x, height: 11,
    // Days are local; hours are the same in UTC.
    rawX: byDay ? { name: "day", at: (at) => local(bars[at].from).slice(0, 10) } : { name: "hour", at: (at) => new Date(bars[at].from).toISOString() },
  };
  const drawn = (cls, value) => ({ kind: "bars", cls: `bar ${cls}`, points: bars.map((bar) => [bar.from, end(bar.from), value(bar)]) });
  const column = (name, cls, value, format) => ({ name, cls, at: (at) => (known(value(bars[at])) ? format(value(bars[at])) : null), value: (at) => value(bars[at]) });
  const over = (kinds) => (bar) => total(kinds, (kind) => partOf(bar, kind)) / HOUR_LONG_MS;
  const most = Math.max(...bars.map((bar) => bar.node_ms / HOUR_LONG_MS), 1e-6);
  const each = byDay ? "day" : "hour";
  const tools = h("fieldset", { class: "switch" }, h("legend", { class: "hidden" }, "Bars"), option("hour", "Hours"), option("day", "Days"));
  const currencies = Object.keys(about.total.money ?? {});
  return h("div", { class: "panel", key: "over time" },
    currencies.map((currency, place) => {
      const cost = (bar) => bar.money[currency] ?? null;
      const highest = Math.max(...bars.map((bar) => cost(bar) ?? 0), 1e-6);
      return chart({
        ...of, id: `money-${currency}`, title: `Cost by ${each}${currencies.length > 1 ? `, ${currency}` : ""}`, tools: place === 0 && tools, y: { from: 0, to: highest * 1.1, format: (value) => amount(value, currency) },
        caption: `${amount(about.total.money[currency], currency)} since ${clock(about.since_ms, now(), false)}; at most ${amount(highest, currency)} in ${byDay ? "a day" : "an hour"}.${about.total.unpriced_ms > 0 ? ` ${inHours(about.total.unpriced_ms)} of nodes without a price are not in it.` : ""}`,
        layers: [drawn("c3", cost)], columns: [column("cost", "c3 strong", cost, (value) => amount(value, currency))],
      });
    }),
    chart({
      ...of, id: "node-hours", title: `Node hours by ${each}`, tools: currencies.length === 0 && tools, y: { from: 0, to: most * 1.1, format: number },
      caption: `Nodes were there for ${inHours(about.total.node_ms)}, and had tasks in ${percent(busyShare(about.total) ?? 0)} of that.`,
      // Each bar is drawn over the longer one that contains it.
      layers: [drawn("c7", over(["busy", "starting", "draining", "idle"])), drawn("c2", over(["busy", "starting", "draining"])), drawn("c5", over(["busy", "starting"])), drawn("c1", over(["busy"]))],
      columns: DID.map(([kind, , cls]) => column(kind, `${cls} strong`, over([kind]), (hours) => inHours(hours * HOUR_LONG_MS))),
    }));
}

const COST = {
  time: words("Node time", ({ of }) => maybe(seenTime(of), inHours, whyNoTime(of)), ({ of }) => seenTime(of), "num"),
  busy: words("Busy", ({ of }) => maybe(of && busyShare(of), (share) => [meter(share), percent(share)], "no time was observed"), ({ of }) => (of ? busyShare(of) : null), "wide"),
  cost: words("Cost", ({ of }) => paid(of?.money, whyNoMoney(of)), ({ of }) => order(of?.money), "num"),
};

// The column of the costs of jobs so far.
export const JOB_COST = rare(words("Cost", ({ about }) => paid(about.cost?.money, whyNoMoney(about.cost)), ({ about }) => order(about.cost?.money), "num"));

function byLabel(labels) {
  const rows = Object.entries(labels).map(([key, of]) => ({ key, of, name: key.slice(0, key.indexOf("=")), value: key.slice(key.indexOf("=") + 1) }));
  const columns = [
    words("Label", ({ name }) => name, ({ name }) => name, "name"), words("Value", ({ value }) => (value === "…" ? muted("all others") : value), ({ value }) => value),
    COST.time, COST.busy, COST.cost, numbers("Without a price", ({ of }) => of.unpriced_ms ?? 0, (ms) => (ms > 0 ? inHours(ms) : "none"), ""),
  ];
  return panel("By label", nothing("A node with several labels is in several rows."), grid({ id: "costs by label", label: "Costs by label", columns, rows, search: ({ key }) => key, empty: "Apart from prices, no node has a label, such as --label zone=a or spot=true." }));
}

function byJob() {
  const rows = jobs().filter(({ about }) => about.cost).map((job) => ({ ...job, of: job.about.cost }));
  const columns = [
    JOB.name, JOB.state, JOB.program, numbers("Nodes", ({ of }) => of.nodes, whole, ""), COST.time,
    numbers("Efficiency", ({ about }) => { const went = spent(about.figures); return went && went.searching / went.all; }, percent, "no node reports where its time went"),
    COST.cost, words("An hour now", ({ of }) => (hasMoney(of.an_hour) ? amounts(of.an_hour) : muted("none")), ({ of }) => order(of.an_hour), "num"),
    words("Not in it", ({ of }) => (of.unpriced > 0 ? count(of.unpriced, "node") : muted("none")), ({ of }) => of.unpriced, "num"),
  ];
  return panel("By job", nothing("Figures of a job cover all reports of its nodes, including the time before its observation."), grid({ id: "costs by job", label: "Costs by job", columns, rows, search: ({ id, about }) => [id, about.record?.name, about.record && release(about.record)].join(" "), sorted: ["Cost", -1], empty: "No node has reported on any job." }));
}

export function costsPage() {
  const costs = data.snapshot.costs;
  if (!known(costs?.about.since_ms)) return { title: "Costs", content: [nothing("Nothing was observed yet.")] };
  const { about, labels } = costs;
  const { total: all, warnings = [] } = about;
  return {
    title: "Costs",
    lead: [h("span", null, `observed since ${clock(about.since_ms, now(), false)}`), muted("A node counts while it is a member")],
    content: [
      warnings.length > 0 && h("ul", { class: "panel warnings warn", "aria-label": "Prices that cannot be read", key: "warnings" }, warnings.map((text) => h("li", { key: text }, h("span", { class: "sign warn", "aria-hidden": "true" }, "▲"), h("span", null, text)))),
      head([
        ["Cost", paid(all.money), list([`since ${clock(about.since_ms, now(), false)}`, all.unpriced_ms > 0 && `${inHours(all.unpriced_ms)} without a price are not in it`])],
        ["An hour now", paid(about.an_hour), withoutPrice(about.unpriced, about.nodes)],
        ["Node time", inHours(all.node_ms), `${count(about.nodes, "node")} now`],
        ["Busy", maybe(busyShare(all), (share) => [percent(share), meter(share)], "no time was observed"), "of the time nodes had tasks"],
      ]),
      costsOverTime(costs),
      all.node_ms > 0 && h("section", { class: "panel", key: "did", "aria-label": "What nodes did" }, parts({
        id: "did", level: "h2", title: "What nodes did", caption: `Nodes ${DID.map(([kind, what]) => [partOf(all, kind), what]).filter(([ms]) => ms > 0).map(([ms, what]) => `${what} for ${inHours(ms)}`).join(", ")}.`, format: inHours,
        of: DID.map(([kind, , cls]) => ({ name: kind, cls: `${cls} strong`, value: partOf(all, kind) })),
      })),
      byJob(), byLabel(labels),
    ],
  };
}
