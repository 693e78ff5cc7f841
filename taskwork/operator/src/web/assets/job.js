// The page of a job: its progress, results, nodes and costs.

import { chart, matrix, parts } from "./charts.js";
import { column, withGaps } from "./workers.js";
import { actionsOfJob } from "./actions.js";
import { costOfJob } from "./costs.js";
import { data, now } from "./data.js";
import { documentsOf, liveDocuments } from "./documents.js";
import { choice, choose, h } from "./dom.js";
import { busy, gapOf, giftsOf, job, jobName, rateNow, rates, release, spent, times } from "./model.js";
import { drawing, events, figures, grid, happened, head, latencies, link, muted, nothing, numbers, panel, rare, WHY, why, words } from "./parts.js";
import { between, bytes, clock, count, duration, exact, isOver, known, maybe, meter, moment, number, percent, quantile, state, total, unknown, whole } from "./text.js";

export function jobPage(id) {
  const one = job(id);
  if (!one) return { title: "Unknown job", content: [nothing(`No job ${id} is known: it may have been removed.`)] };
  const { about, points, detail } = one;
  const { record } = about;
  const title = jobName(id, about);
  one.x = axis(one);
  return {
    title,
    lead: [state(about.stage), record && [muted(release(record)), record.kind && muted(record.kind)], muted(id), record && h("span", null, "submitted ", moment(record.submitted_ms, now(), false), record.submitter && ` by ${record.submitter}`)],
    content: [
      data.view.remarks?.map((remark) => h("p", { class: "remark", key: remark }, remark)),
      (about.missing ?? record?.reason) ? h("p", { class: "remark" }, about.missing ?? record.reason) : !isOver(about.stage) && about.stage !== "running" && h("p", { class: "remark" }, "It does not run: ", why(one)),
      numbersOf(one),
      actionsOfJob(id, about),
      displayed(id, about),
      points.length > 1 ? [convergence(one), h("div", { class: "panel", key: "time" }, workersOverTime(one), points.at(-1).worked > 0 && rateOfWork(one)), shareDone(one)] : nothing("There is no history of this job."),
      detail?.picture && panel("Picture", h("img", { class: "picture", alt: `The solution of ${title}, as its program draws it`, src: `data:image/svg+xml,${encodeURIComponent(detail.picture)}` })),
      h("div", { class: "pair", key: "time spent" }, timeSpent(one), panel("Events", events([...one.moments, ...one.improvements].sort((a, b) => a.at_ms - b.at_ms), 10))),
      nodeRows(one),
      h("div", { class: "pair", key: "costs" }, steals(one), zookeeper(one)),
    ],
  };
}

function axis({ about, points }) {
  const from = points[0]?.at_ms ?? times(about).from ?? now();
  return [from, Math.max(points.at(-1)?.at_ms ?? from, from + 5_000)];
}

function numbersOf({ about, points }) {
  const { stage, figures: done, pool, record, open_tasks: open, parked_tasks: parked } = about;
  const over = isOver(stage);
  const went = spent(done);
  return head([
    [over ? "Took" : "Elapsed", maybe(times(about).seconds, duration, WHY.span), over && record?.finished_ms && ["until ", moment(record.finished_ms, now())]],
    ["Share done", maybe(about.share, (share) => [percent(share), meter(share)], WHY.share)],
    ["Best", maybe(about.best, exact, WHY.best), known(about.bound) && `bound ${exact(about.bound)}`],
    ["Gap", maybe(about.gap, percent, known(about.best) ? WHY.bound : WHY.best)],
    ["Ends in", about.eta ? between(about.eta) : unknown(stage === "running" ? WHY.end : "it does not run"), about.eta && `8 of 10, half of them in ${duration(about.eta.likely_seconds)}`],
    ["Workers", maybe(pool?.workers, whole, "no node at work reports its pool"), pool && `${percent(busy(pool) ?? 0)} busy, ${count(about.nodes_at_work, "node")}`],
    ["Rate", maybe(stage === "running" ? rateNow(points) : null, (rate) => `${number(rate)}/s`, "it does not run, or too little was observed"), about.reported && `${number(done.worked)} units done`],
    ["Efficiency", maybe(went && went.searching / went.all, percent, "no node reports where its time went"), "of the time was searched"],
    ["Tasks", about.reported ? number(done.tasks) : unknown(WHY.reports), known(open) && `${whole(open)} open${parked > 0 ? `, ${whole(parked)} parked` : ""}`],
    record && (record.share.weight !== 1 || record.share.priority !== 0) && ["Weight", whole(record.share.weight), `priority ${whole(record.share.priority)}`],
    ...costOfJob(about),
    ["Attempt", maybe(record?.attempt, whole, WHY.record), record && `of ${whole(record.attempts_max)}`],
  ]);
}

const overTime = (one, of) => chart({ level: "h2", group: "job", xs: one.points.map((point) => point.at_ms), x: one.x, ...of, layers: of.layers.map((layer) => ({ ...layer, points: withGaps(layer.points, one.moments) })) });

function convergence(one) {
  const { points, improvements, about, x } = one;
  const [best, bound] = ["best", "bound"].map((kind) => points.map((point) => point[kind] ?? null));
  const gaps = best.map((value, at) => gapOf(value, bound[at]));
  const all = [...best, ...bound].filter(known);
  if (all.length === 0) return null;
  const open = gaps.filter((gap) => gap > 0);
  const isLog = choice("log", false) && open.length > 1;
  const at = (values) => points.map((point, index) => [point.at_ms, ...values.map((of) => of[index])]);
  const option = (log, name) => h("label", { class: log === isLog ? "on" : "" }, h("input", { type: "radio", name: "log", checked: log === isLog, onchange: () => choose("log", log) }), name);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const room = (most - least || Math.abs(most) || 1) * 0.06;
  const first = gaps.find(known);
  return h("div", { class: "panel", key: "convergence" }, overTime(one, {
    id: "convergence", title: "Convergence", height: 16,
    caption: [
      known(about.best) ? `The best solution known is ${exact(about.best)}` : "No solution is known yet",
      improvements.length > 1 && `, after at least ${count(improvements.length, "improvement")}, the last at ${clock(improvements.at(-1).at_ms, x[1])}`,
      !known(about.bound) ? "; no bound is known." : about.gap === 0 ? "; it is proved that none is better." : `; none can be better than ${exact(about.bound)}. The gap is ${percent(about.gap)}${first > about.gap ? `, down from ${percent(first)}` : ""}.`,
    ].filter(Boolean).join(""),
    tools: open.length > 1 && h("fieldset", { class: "switch" }, h("legend", { class: "hidden" }, "What is shown"), option(false, "Values"), option(true, "Gap, logarithmic")),
    y: isLog ? { from: 10 ** Math.floor(Math.log10(Math.min(...open))), to: 10 ** Math.ceil(Math.log10(Math.max(...open))), isLog, format: percent } : { from: least - room, to: most + room, format: exact },
    layers: isLog ? [{ kind: "line", cls: "c5", points: at([gaps.map((gap) => gap || null)]) }]
      : [{ kind: "band", isStep: true, cls: "c1", points: at([bound, best]) }, { kind: "line", cls: "c2 dashed", points: at([bound]) }, { kind: "step", cls: "c1", points: at([best]) }],
    columns: [column("best", isLog ? null : "c1 line", best, exact), column("bound", isLog ? null : "c2 line dashed", bound, exact), column("gap", isLog ? "c5 line" : "c1", gaps, percent)],
    marks: improvements.map(({ at_ms: when, value, gap, node }) => ({ x: when, kind: "best", text: () => `${clock(when, x[1])}: ${known(value) ? exact(value) : "better"}${known(gap) ? `, gap ${percent(gap)}` : ""}${node ? ` by ${node}` : ""}` })).filter((mark) => mark.x >= x[0]),
  }));
}

const marksOf = ({ moments, x }) => moments.filter(({ what, at_ms: at }) => at >= x[0] && !what.startsWith("job")).map(({ at_ms: at, what, name }) => ({ x: at, kind: what, text: () => `${clock(at, x[1])}: ${name} ${happened(what)}` }));

function workersOverTime(one) {
  const { points, about, moments } = one;
  const most = Math.max(1, ...points.map((point) => point.workers.most));
  const changes = ["joined", "left", "lost"].map((what) => [moments.filter((moment) => moment.what === what).length, what]).filter(([n]) => n > 0);
  const [workers, working] = ["workers", "busy"].map((kind) => points.map((point) => point[kind].last));
  const area = (from, to) => points.map((point, at) => [point.at_ms, from ? from[at] : 0, to[at]]);
  return overTime(one, {
    id: "workers", title: "Nodes over time", height: 12, y: { from: 0, to: most * 1.05, format: number },
    caption: `${about.pool ? `${count(about.pool.workers, "worker")} on ${count(about.nodes_at_work, "node")} now, at` : "At"} most ${count(most, "worker")} at a time. ${changes.length > 0 ? `Nodes: ${changes.map(([n, what]) => `${whole(n)} ${what}`).join(", ")}.` : "No node has come or gone."}`,
    layers: [{ kind: "band", isStep: true, cls: "c1 strong", points: area(null, working) }, { kind: "band", isStep: true, cls: "c7 idle", points: area(working, workers) }, { kind: "step", cls: "c7", points: points.map((point, at) => [point.at_ms, workers[at]]) }],
    columns: [column("busy workers", "c1 strong", working, whole), column("idle", "c7", workers.map((n, at) => n - working[at]), whole), column("nodes", null, points.map((point) => point.nodes.last), whole)],
    marks: marksOf(one),
  });
}

function rateOfWork(one) {
  const { points } = one;
  const values = rates(points);
  const all = values.filter(known);
  const most = Math.max(1e-9, ...all);
  const work = points.at(-1).worked - points[0].worked;
  return overTime(one, {
    id: "rate", title: "Rate of work", height: 10, y: { from: 0, to: most * 1.08, format: number },
    caption: `${number(points.at(-1).worked)} units of work so far; at most ${number(most)} a second, on the average ${number((work / (one.x[1] - one.x[0])) * 1000)}.`,
    layers: [{ kind: "band", cls: "c6", points: points.map((point, at) => [point.at_ms, 0, values[at]]) }, { kind: "line", cls: "c6", points: points.map((point, at) => [point.at_ms, values[at]]) }],
    columns: [column("units a second", "c6 line", values, number), column("for each worker", null, values.map((rate, at) => (known(rate) && points[at].workers.last > 0 ? rate / points[at].workers.last : null)), number)],
    marks: marksOf(one),
  });
}

function shareDone(one) {
  const { points, about, x } = one;
  if (!known(about.share)) return null;
  const left = about.eta;
  // The forecast covers about the same time as the past.
  const to = left ? Math.min(x[1] + left.most_seconds * 1000, x[1] + (x[1] - x[0]) * 1.2) : x[1];
  const by = (seconds, at) => Math.min(1, about.share + ((1 - about.share) * (at - x[1])) / 1000 / Math.max(seconds, 1e-3));
  const ahead = left ? Array.from({ length: 21 }, (_, part) => x[1] + (part / 20) * (to - x[1])) : [];
  const shares = points.map((point) => point.share ?? null);
  return h("div", { class: "panel", key: "share" }, overTime(one, {
    id: "share", title: "Share done", height: 10, x: [x[0], to], y: { from: 0, to: 1, format: (value) => `${Math.round(value * 100)}\u202f%` },
    caption: `${percent(about.share)} of the whole is done, as the program estimates it.${left ? ` With such a share, 8 of 10 recorded jobs ended in ${between(left)}.` : isOver(about.stage) ? "" : " It is too early to say when it ends."}`,
    layers: [
      { kind: "band", cls: "c3", points: ahead.map((at) => [at, by(left.most_seconds, at), by(left.least_seconds, at)]) },
      { kind: "line", cls: "c3 dashed", points: ahead.map((at) => [at, by(left.likely_seconds, at)]) },
      { kind: "line", cls: "c3", points: points.map((point, at) => [point.at_ms, shares[at]]) },
    ],
    columns: [column("share done", "c3 line", shares, percent)],
  }));
}

const SPENT = [["searching", "searching", "c1"], ["handling", "starting and completing tasks", "c5"], ["looking", "looking for work", "c2"], ["starting", "starting", "c7"]];

function timeSpent({ about }) {
  const [title, went] = ["Where the time went", spent(about.figures)];
  if (!went) return panel(title, nothing("No node reports the activities of its workers."));
  return h("section", { class: "panel", key: title, "aria-label": title }, parts({
    id: "spent", level: "h2", title, caption: `${duration(went.all)} of the workers' time, of which ${percent(went.searching / went.all)} went into the search.`, format: duration,
    of: SPENT.map(([kind, name, cls]) => ({ name, cls: `${cls} strong`, value: went[kind] })),
  }));
}

const unknownYet = () => nothing(`Unknown: ${WHY.reports}.`);

const TICKS = { improved: "best", told_to_leave: "told", panicked: "bad", set_aside: "bad", lost: "bad", continues: "other", first_task: "first", leads: "first" };

function nodeRows({ about, nodes }) {
  const seen = nodes.filter((node) => node.from !== null);
  const from = Math.min(...seen.map((node) => node.from));
  const to = Math.max(from + 1, ...seen.map((node) => node.to), isOver(about.stage) ? 0 : now());
  const place = (at) => `${(Math.max(0, Math.min(1, (at - from) / (to - from))) * 100).toFixed(2)}%`;
  const life = ({ from: begins, to: ends, state: what, report, timeline }) => {
    if (begins === null) return unknown(WHY.report);
    const text = timeline.map(({ at_ms: at, kind }) => `${clock(at, to)} ${kind.replaceAll("_", " ")}`).join(", ");
    return h("span", { class: "life", role: "img", "aria-label": text, title: text },
      h("span", { class: `span ${what}`, style: { left: place(begins), right: `calc(100% - ${place(report.last || what === "lost" ? ends : to)})` } }),
      timeline.filter(({ kind }) => TICKS[kind]).slice(-24).map(({ at_ms: at, kind }) => h("span", { class: `tick ${TICKS[kind]}`, style: { left: place(at) } })));
  };
  const columns = [
    words("Node", (node) => link("node", node.name), (node) => node.name, "name"),
    words("State", (node) => [state(node.state), node.name === about.leader && h("span", { class: "tag" }, "leads")], (node) => node.state),
    words("Life", life, (node) => node.from, "wide"),
    words("Busy", ({ report: { pool } }) => (pool ? `${whole(pool.busy)} of ${whole(pool.workers)}` : unknown(WHY.pool)), ({ report }) => busy(report.pool), "num"),
    numbers("Idle time", (node) => node.idle, percent, WHY.report),
    numbers("Rate", (node) => node.rate, (rate) => `${number(rate)}/s`, WHY.report),
    numbers("Stolen", (node) => node.figures.stolen_tasks, number, WHY.report),
    numbers("Time", (node) => node.seconds, duration, WHY.report),
  ];
  return panel("Nodes", nothing("Lives run from the first to the last report of a node, by its own clock. Lines mark the first task, ◆ better solutions, ▼ requests to leave."),
    grid({ id: "job nodes", label: "Nodes of this job", columns, rows: nodes, search: ({ name, state: what, labels }) => [name, what, ...Object.values(labels)].join(" "), empty: "There are no reports of nodes, or they were removed some time after the job was over." }));
}

function steals({ id, about: { reported, figures: { requests, steals: granted, stolen_tasks: tasks, steal_times: took } }, nodes }) {
  if (!reported) return panel("Steals", unknownYet());
  const gave = giftsOf(id, nodes);
  const within = (share) => maybe(quantile(took, share), duration, "no steal was timed");
  const most = gave && Math.max(...gave.cells.flat());
  const at = gave?.cells.flat().indexOf(most);
  return panel("Steals", figures([["Tasks received", number(tasks)], ["Granted", requests > 0 ? percent(granted / requests) : unknown("nothing was requested"), `of ${count(requests, "request")}`], ["Median", within(0.5)], ["99 of 100", within(0.99)]]),
    gave ? matrix({
      id: "gifts", title: "Who fed whom", names: gave.groups, cells: gave.cells, hint: `Those at the left gave to those above${gave.by}.`,
      caption: most > 0 ? `Most tasks went from ${gave.groups[Math.floor(at / gave.groups.length)]} to ${gave.groups[at % gave.groups.length]}: ${whole(most)}.${gave.rest > 0 ? ` ${number(gave.rest)} tasks came from nodes that are not named.` : ""}` : "No node has received a task from another one.",
    }) : nothing("No node reports the origin of its tasks, or there are too many groups of nodes."));
}

function zookeeper({ about: { reported, requests, latencies: took, figures: done } }) {
  if (!reported) return panel("ZooKeeper", unknownYet());
  const { reads, writes, multis } = requests;
  return panel("ZooKeeper", figures([
    ["Requests", number(total(Object.values(requests))), `${number(reads)} reads, ${number(writes)} writes, ${number(multis)} multis`],
    ["Transactions", number(done.transactions), done.tasks > 0 && `${number((done.transactions / done.tasks) * 1000)} in a thousand tasks`],
    ["Repeated", number(done.retries), done.retries > 0 && `${percent(done.retries / (done.transactions + done.retries))} of the tries`],
    ["Recovered", number(done.recovered), "tasks of lost nodes"],
  ]), latencies("Writes", "writes", took?.writes), latencies("Reads", "reads", took?.reads));
}

const UNIT_FORMATS = { count: whole, number, share: percent, seconds: duration, bytes };

// A value of a framework; `null` or of another type if it is unknown.
const formatted = (value, unit) => (unit === "text" ? (typeof value === "string" ? value : unknown(WHY.report)) : maybe(value, UNIT_FORMATS[unit], WHY.report));

// The values, tables, pictures and documents that the framework of a job describes. The server has checked their form.
function displayed(id, { display, stage }) {
  if (!display) return null;
  const { values, tables, pictures, documents } = display;
  return [
    values.length > 0 && panel("Status", figures(values.map(({ label, unit, value }) => [label, formatted(value, unit)]))),
    tables.map((table) => panel(table.label, ownTable(id, table), table.omitted > 0 && nothing(`Not shown: ${count(table.omitted, "further row")}.`))),
    pictures.filter(({ format }) => format === "svg").map(({ label, content }) => panel(label, drawing(label, content))),
    liveDocuments(id, documents, stage),
    documentsOf(id, documents, stage),
  ];
}

// Columns with longer texts wrap their lines.
const WIDE_CHARS_MIN = 40;

function ownTable(id, { name: table, label: title, columns, rows }) {
  const own = columns.map(({ name, label, unit, rare: isRare }, at) => {
    const cell = ({ cells }) => (unit === "share" && known(cells[name]) ? [meter(cells[name]), percent(cells[name])] : formatted(cells[name], unit));
    const sort = ({ cells }) => (["string", "number"].includes(typeof cells[name]) ? cells[name] : null);
    const column = words(label, cell, sort, unit !== "text" ? (unit === "share" ? "share" : "num") : at === 0 ? "name" : rows.some((row) => row[name]?.length > WIDE_CHARS_MIN) ? "wide" : "mid");
    return isRare ? rare(column) : column;
  });
  const search = ({ cells }) => Object.values(cells).filter((cell) => typeof cell === "string").join(" ");
  // First in the framework's order, such as that of the steps of a path. The reader's choices belong to the columns.
  return grid({ id: `${id} ${table} ${columns.map(({ name }) => name)}`, label: `${title}: table`, columns: own, rows: rows.map((cells, key) => ({ cells, key })), search, sorted: [null, 1] });
}
