// Components of several pages: named figures, long tables, lists of events.

import { chart, glyph } from "./charts.js";
import { data, now } from "./data.js";
import { choice, choose, em, h } from "./dom.js";
import { jobName, jobWithId, release, times } from "./model.js";
import { classEnd, duration, exact, isOver, known, maybe, moment, number, percent, quantile, state, total, unknown, whole } from "./text.js";

// The reasons why a value is unknown.
export const WHY = {
  share: "the program does not estimate how much of the whole is done",
  best: "no solution is known, or solutions of this program have no numbers",
  bound: "a task does not say what may still be found in it",
  end: "too early to say: less than 10 % is done, or too little was observed",
  pool: "it works on nothing, or does not report its pool",
  process: "it works on nothing, or its system does not tell",
  record: "what it says of itself cannot be read",
  report: "it has not reported it",
  reports: "no node has reported on this job, or what nodes reported was not read yet",
  span: "its record does not say when it began and ended",
};

export const link = (page, name, text = name) => h("a", { href: `#/${page}/${encodeURIComponent(name)}` }, text);
export const jobLink = (id) => link("job", id, jobWithId(id, data.snapshot.jobs[id]?.about));
export const links = (ids) => ids.map((id, at) => [at > 0 && ", ", jobLink(id)]);
export const muted = (...text) => h("span", { class: "muted" }, text);
export const nothing = (text) => h("p", { class: "muted" }, text);
export const panel = (title, ...content) => h("section", { class: "panel", key: title, "aria-label": title }, h("h2", null, title), content);


// A picture in SVG, scrolled if it is wider than the page.
export const drawing = (label, svg) => h("div", { class: "scroll drawing", tabindex: "0", role: "region", "aria-label": `${label}: picture` }, h("img", { alt: label, src: `data:image/svg+xml,${encodeURIComponent(svg)}` }));

// Named values: [name, value, note]. Unknown and missing ones are omitted.
const isUnknown = (value) => value?.attrs?.class === "unknown";
export const figures = (list, kind = "") => h("dl", { class: `figures ${kind}` }, list.filter((one) => one && !isUnknown(one[1])).map(([name, value, note]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value, note && h("span", { class: "note" }, note)))));
export const head = (list) => h("section", { class: "panel", "aria-label": "Figures", key: "figures" }, figures(list, "main"));

// Columns of a table: for words, and for numbers. A rare column is omitted if `sort` is null or 0 in all rows.
export const words = (name, cell, sort, cls = "mid") => ({ name, cell, sort, cls });
export const rare = (column) => ({ ...column, isRare: true });
export const numbers = (name, of, format, why) => ({ name, cell: (row) => maybe(of(row), format, why), sort: (row) => of(row) ?? null, cls: "num" });

const record = (of) => ({ about }) => (about.record ? of(about.record) : unknown(WHY.record));
export const JOB = {
  name: words("Job", ({ id }) => jobLink(id), ({ id, about }) => jobName(id, about), "name"),
  state: words("State", ({ about }) => state(about.stage), ({ about }) => about.stage),
  program: words("Program", record(release), ({ about }) => about.record?.program ?? null),
  owner: words("Owner", record(({ submitter }) => submitter), ({ about }) => about.record?.submitter ?? null),
  priority: rare(words("Priority", record(({ share }) => whole(share.priority)), ({ about }) => about.record?.share.priority ?? null, "num")),
  weight: rare(words("Weight", record(({ share }) => whole(share.weight)), ({ about }) => (about.record?.share.weight ?? 1) - 1, "num")),
  submitted: words("Submitted", record(({ submitted_ms: at }) => moment(at, now(), false)), ({ about }) => about.record?.submitted_ms ?? null),
  ended: words("Ended", record(({ finished_ms: at }) => (known(at) ? moment(at, now(), false) : unknown(WHY.span))), ({ about }) => about.record?.finished_ms ?? null),
  nodes: numbers("Nodes", ({ about }) => (about.stage === "running" ? about.nodes_at_work : null), whole, WHY.pool),
  gap: numbers("Gap", ({ about }) => about.gap, percent, WHY.bound),
  took: numbers("Took", ({ about }) => times(about).seconds, duration, WHY.span),
  share: numbers("Done", ({ about }) => about.share, percent, WHY.share),
  best: numbers("Best", ({ about }) => about.best, exact, WHY.best),
  work: numbers("Work done", ({ about }) => (about.reported ? about.figures.worked : null), number, WHY.reports),
  attempt: numbers("Attempts", ({ about }) => about.record?.attempt, whole, WHY.record),
};

// The reason why a job does not run; empty if it runs.
const REASONS = { queued: "its nodes work on earlier jobs", suspended: "an operator has suspended it", submitting: "its data is being written", abandoned: "its submitter is gone", unreadable: WHY.record };
export const why = ({ about: { stage, missing, record } }) => missing ?? (stage === "waiting" ? ["after ", links(record?.after ?? [])] : REASONS[stage] ?? "");
const ROWS_ALL = 60;
const ROWS_BESIDE = 8;
// The maximum height of tables, as a share of the window; the same as in the style sheet.
const HEIGHT_MAX = 0.75;
const HEIGHT_EM_MIN = 24;

// A table, sortable by columns { name, cell(row), sort(row), cls }, and filtered by the text of `search(row)`.
// `sorted` is [name, direction], or [null, 1] for the order of the keys. Rows have a `key`; of long tables only the visible rows are rendered.
export function grid({ id, label, columns: all, rows, search, sorted = [all[0].name, 1], empty = "There is none." }) {
  const columns = all.filter(({ sort, isRare }) => !isRare || rows.some((row) => sort(row)));
  const [chosenName, way] = choice(`sort:${id}`, sorted);
  const by = chosenName === null ? -1 : Math.max(0, columns.findIndex(({ name }) => name === chosenName));
  const typed = choice(`search:${id}`, "");
  const asked = typed.toLowerCase();
  const found = asked ? rows.filter((row) => search(row).toLowerCase().includes(asked)) : rows;
  const valued = found.map((row) => [by < 0 ? row.key : columns[by].sort(row), row]);
  // Unknown values come last in both directions.
  valued.sort(([x, a], [y, b]) => (x === null || y === null ? (x === null) - (y === null) : (x < y ? -1 : x > y ? 1 : a.key < b.key ? -1 : 1) * way));
  const size = Math.round(em() * 2.4);
  const isMany = valued.length > ROWS_ALL;
  const most = Math.ceil(Math.max(HEIGHT_EM_MIN * em(), window.innerHeight * HEIGHT_MAX) / size) + ROWS_BESIDE;
  const from = isMany ? Math.max(0, Math.min(valued.length - most, Math.floor(choice(`scroll:${id}`, 0) / size) - ROWS_BESIDE / 2)) : 0;
  const seen = isMany ? valued.slice(from, from + most) : valued;
  const space = (key, count) => count > 0 && h("tr", { key, "aria-hidden": "true", class: "space" }, h("td", { colspan: columns.length, style: { height: `${count * size}px` } }));
  const title = ({ name, sort, cls }, at) => h("th", { scope: "col", class: cls, "aria-sort": at === by ? (way > 0 ? "ascending" : "descending") : null },
    sort ? h("button", { type: "button", class: "sort", onclick: () => choose(`sort:${id}`, [name, at === by ? -way : 1]) }, name, h("span", { "aria-hidden": "true", class: "arrow" }, at === by ? (way > 0 ? "↑" : "↓") : "")) : name);
  return h("div", { class: "grid", key: id },
    rows.length > 8 && h("label", { class: "search" }, "Filter ", h("input", { type: "search", value: typed, oninput: (event) => choose(`search:${id}`, event.target.value) }), h("span", { class: "muted", role: "status" }, ` ${whole(found.length)} of ${whole(rows.length)}`)),
    found.length === 0 ? nothing(asked ? "Nothing matches." : empty) : h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, onscroll: (event) => isMany && choose(`scroll:${id}`, event.target.scrollTop) },
      h("table", { "aria-rowcount": found.length + 1 }, h("caption", { class: "hidden" }, label), h("thead", null, h("tr", null, columns.map(title))),
        h("tbody", null, space("before", from),
          seen.map(([, row], at) => h("tr", { key: `row ${row.key}`, "aria-rowindex": from + at + 2, style: { height: `${size}px` } }, columns.map(({ cell, cls }, column) => h(column === 0 ? "th" : "td", { class: cls, scope: column === 0 && "row" }, cell(row))))),
          space("after", valued.length - from - seen.length)))));
}

const HAPPENED = { joined: ["joined", "has joined"], left: ["left", "has left"], lost: ["lost", "was lost"], cordoned: ["other", "was cordoned"], uncordoned: ["other", "was uncordoned"], job_runs: ["other", "runs"], job_over: ["other", "is over"], job_share: ["other", "has another share of the workers"], servers_away: ["lost", "does not answer"], servers_back: ["other", "answers again"] };
export const happened = (what) => HAPPENED[what]?.[1] ?? what;

function onHost(node, gone) {
  const host = (gone ?? data.snapshot.members[node]?.member)?.host;
  return host && ` on ${host}`;
}

// How a job ended: only its last end is known, since a retry continues it.
function ended(job, at, list) {
  const stage = data.snapshot.jobs[job]?.about.stage;
  const isLast = list.findLast(({ what, name }) => what === "job_over" && name === job)?.at_ms === at;
  return isLast && isOver(stage) && `: ${stage}`;
}

// The share that a user gave to a job, for the latest change.
function shared(job, at, list) {
  const { weight, priority } = data.snapshot.jobs[job]?.about.record?.share ?? {};
  const isLast = list.findLast(({ what, name }) => what === "job_share" && name === job)?.at_ms === at;
  return isLast && known(weight) && `: weight ${whole(weight)}, priority ${whole(priority)}`;
}

// The latest events, the most recent first, including better solutions.
export function events(list, most) {
  if (list.length === 0) return nothing("No events since the start of the observation.");
  const text = ({ at_ms, what, name, value, gap, node, member }) => what === undefined ? ["Best ", h("b", null, known(value) ? exact(value) : "improved"), known(gap) && `, gap ${percent(gap)}`, node && [" by ", link("node", node)]] : [what.startsWith("job") ? ["Job ", jobLink(name)] : what.startsWith("servers") ? name : ["Node ", link("node", name), onHost(name, member)], ` ${happened(what)}`, what === "job_over" && ended(name, at_ms, list), what === "job_share" && shared(name, at_ms, list)];
  return h("ol", { class: "events" }, list.slice(-most).reverse().map((one) => h("li", { key: `${one.at_ms} ${one.what} ${one.name}` }, moment(one.at_ms, now()), glyph(one.what ? HAPPENED[one.what]?.[0] : "best"), h("span", null, text(one)))));
}

// The distribution of request times.
export function latencies(title, id, classes) {
  const from = classes?.findIndex((times) => times > 0) ?? -1;
  if (from < 0) return nothing("No node reports the times of its requests.");
  const seen = classes.slice(from, classes.findLastIndex((times) => times > 0) + 1);
  return chart({
    id, title, caption: `${whole(total(seen))} requests: half of them took up to ${duration(quantile(classes, 0.5))}, 99 of 100 up to ${duration(quantile(classes, 0.99))}.`,
    xs: seen.map((_, at) => at + 0.5), x: [0, seen.length], nameX: (value) => `≤ ${duration(classEnd(from + Math.min(seen.length - 1, Math.floor(value))))}`, y: { from: 0, to: Math.max(...seen) * 1.1, format: number },
    layers: [{ kind: "bars", cls: "c1", points: seen.map((times, at) => [at, at + 1, times]) }], columns: [{ name: "requests", cls: "c1 strong", at: (at) => whole(seen[at]), value: (at) => seen[at] }], height: 8,
    rawX: { name: "up_to_seconds", at: (at) => classEnd(from + at) },
  });
}
