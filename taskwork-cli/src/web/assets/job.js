// The page of a job: how far it is, what came of it, who worked on it, and what that cost.

import { chart, matrix, parts } from "./charts.js";
import { now } from "./data.js";
import { choice, choose, h } from "./dom.js";
import { busyShare, efficiency, ending, gifts, job, jobName, MOMENTS, rateNow, rates, times, whereTimeWent } from "./model.js";
import { events, figures, grid, link, nothing, panel } from "./parts.js";
import { bytes, classEnd, clock, count, duration, exact, isOver, known, maybe, meter, moment, number, percent, quantile, state, unknown, whole } from "./text.js";

const NO_SHARE = "the program does not estimate how much of the whole is done";
const NO_BEST = "no solution is known yet, or the program has no numbers of solutions";
const NO_BOUND = "no bound is known: some task does not report its outlook";

export function jobPage(id) {
  const one = job(id);
  if (!one) return { title: "Unknown job", content: [nothing(`No job ${id} is known: it may have been removed, or it is too old.`)] };
  const { about } = one;
  const title = jobName(id, about);
  const axis = axisOf(one);
  const some = one.points.length > 0;
  return {
    title,
    lead: [state(about.stage), about.record && h("span", null, `${about.record.program} ${about.record.program_version}`, about.record.kind && ` · ${about.record.kind}`), h("span", null, `job ${id}`),
      about.record?.submitter && h("span", null, `submitted by ${about.record.submitter} `, moment(about.record.submitted_ms, now(), false))],
    content: [
      (about.missing || about.record?.reason) && h("p", { class: "remark" }, about.missing ?? about.record.reason),
      header(one),
      some ? [convergence(one, axis), h("div", { class: "panel", key: "over time" }, nodesOverTime(one, axis), rateOfWork(one, axis)), known(about.share) && share(one, axis)]
        : nothing(isOver(about.stage) ? "It was over before this was observed: there is nothing over time." : "Nothing over time is known yet."),
      workflow(about.sight?.workflow?.summary),
      one.detail?.picture && panel("Picture", h("img", { class: "picture", alt: `The solution of ${title}, as its program draws it`, src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(one.detail.picture)}` })),
      h("div", { class: "pair", key: "pair" }, whereItWent(one), events2(one)),
      nodeRows(one),
      h("div", { class: "pair", key: "pair2" }, steals(one), zookeeper(one)),
    ],
  };
}

function axisOf({ about, points }) {
  const { from, to } = times(about);
  const first = points[0]?.at_ms ?? from ?? now();
  const end = isOver(about.stage) ? (points.at(-1)?.at_ms ?? to) : Math.max(points.at(-1)?.at_ms ?? 0, first);
  return [first, Math.max(end ?? first, first + 5_000)];
}

function header(one) {
  const { about, points } = one;
  const { seconds, to } = times(about);
  const end = ending(about, points);
  const over = isOver(about.stage);
  const attempt = about.record && [whole(about.record.attempt), `of at most ${whole(about.record.attempts_max)}`];
  return h("section", { class: "panel", "aria-label": "Figures", key: "figures" }, figures([
    [over ? "Took" : "Elapsed", maybe(seconds, duration, "its record does not say when it began or ended"), over && to ? ["until ", moment(to, now())] : null],
    ["Share done", maybe(about.share, (share) => [percent(share), meter(share)], NO_SHARE)],
    ["Best", maybe(about.best, exact, NO_BEST), known(about.bound) ? `bound ${exact(about.bound)}` : null],
    ["Gap", maybe(about.gap, percent, known(about.best) ? NO_BOUND : NO_BEST)],
    !over && ["Ends in", end ? duration(end.likely) : unknown(about.stage === "running" ? "too early to say: less than 2 % is done, or too little was observed" : "it does not run"), end && span(end)],
    ["Workers", maybe(about.pool?.workers, whole, "no node at work reports its pool"), about.pool && `${percent(busyShare(about.pool) ?? 0)} busy, ${count(about.nodes_at_work, "node")}`],
    ["Rate", maybe(over ? null : rateNow(points), (rate) => `${number(rate)}/s`, over ? "it is over" : "too little was observed"), `${number(about.figures.worked)} units done`],
    ["Efficiency", maybe(efficiency(about.figures, one.detail?.where_time_went), percent, "no node reports where its time went"), "of the workers' time searched"],
    ["Tasks", whole(about.figures.tasks), known(about.open_tasks) ? `${count(about.open_tasks, "open task")}${about.parked_tasks ? `, ${whole(about.parked_tasks)} parked` : ""}` : null],
    attempt && ["Attempt", ...attempt],
  ], "main"));
}

function span({ least, most }) {
  const at = (seconds) => clock(now() + seconds * 1000, now(), false);
  return most === null ? `not before ${at(least)}` : at(least) === at(most) ? `at ${at(most)}` : `${at(least)} to ${at(most)}`;
}

// From the least to the most of some values, with some room; null if there are none.
function range(values, room = 0.06) {
  const all = values.filter(known);
  if (all.length === 0) return null;
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const more = (most - least || Math.abs(most) || 1) * room;
  return [least - more, most + more];
}

function convergence(one, x) {
  const { points, improvements, about } = one;
  const title = "Convergence";
  const seen = points.filter((point) => known(point.best) || known(point.bound));
  if (seen.length === 0) return null;
  const gapAt = (point) => (known(point.best) && known(point.bound) ? (point.best === point.bound ? 0 : Math.abs(point.best - point.bound) / Math.max(Math.abs(point.best), 1e-10)) : null);
  const isLog = choice("log:convergence", false);
  const xs = points.map((point) => point.at_ms);
  const gaps = points.map(gapAt);
  const positive = gaps.filter((gap) => gap > 0);
  const canLog = positive.length > 1;
  const tools = canLog && h("fieldset", { class: "switch" }, h("legend", { class: "hidden" }, "What is shown"), [[false, "Values"], [true, "Gap, logarithmic"]].map(([log, name]) => h("label", { key: name, class: log === isLog ? "on" : "" }, h("input", { type: "radio", name: "convergence", checked: log === isLog, onchange: () => choose("log:convergence", log) }), name)));
  const marks = improvements.filter((one) => one.at_ms >= x[0]).map((one) => ({ x: one.at_ms, kind: "best", text: `${clock(one.at_ms, x[1])}: ${known(one.value) ? exact(one.value) : "better"}${one.node ? ` by ${one.node}` : ""}` }));
  const log = isLog && canLog;
  const values = range(points.flatMap((point) => [point.best, point.bound]));
  const layers = log ? [{ kind: "line", cls: "c5", points: points.map((point, at) => [point.at_ms, gaps[at] > 0 ? gaps[at] : null]) }] : [
    { kind: "band", cls: "c1", steps: "both", points: points.map((point) => [point.at_ms, point.bound, point.best]) },
    { kind: "line", cls: "c2 dashed", points: points.map((point) => [point.at_ms, point.bound]) },
    { kind: "step", cls: "c1", points: points.map((point) => [point.at_ms, point.best]) },
  ];
  const first = gaps.find(known);
  const caption = [
    known(about.best) ? `The best solution known is ${exact(about.best)}` : "No solution is known yet",
    improvements.length > 1 ? `, after ${count(improvements.length, "improvement")}, the last one at ${clock(improvements.at(-1).at_ms, x[1])}` : "",
    known(about.bound) ? (about.gap === 0 ? "; it is proved that there is none better." : `; none can be better than ${exact(about.bound)}. The gap is ${percent(about.gap)}${known(first) && first > about.gap ? `, down from ${percent(first)}` : ""}.`) : "; no bound is known.",
  ].join("");
  const y = log ? { from: 10 ** Math.floor(Math.log10(Math.min(...positive))), to: 10 ** Math.ceil(Math.log10(Math.max(...positive))), log: true, format: percent } : { from: values[0], to: values[1], format: exact };
  const columns = [
    { name: "best", cls: "c1 line", at: (at) => known(points[at].best) && exact(points[at].best) || null },
    { name: "bound", cls: "c2 line dashed", at: (at) => known(points[at].bound) && exact(points[at].bound) || null },
    { name: "gap", cls: log ? "c5 line" : "c1 fill", at: (at) => (known(gaps[at]) ? percent(gaps[at]) : null) },
  ];
  return h("div", { class: "panel", key: title }, chart({ id: "convergence", group: "job", level: "h2", title, caption, tools, xs, x, y, layers, columns, marks, height: 16 }));
}

function momentMarks(one, x) {
  return one.moments.filter((moment) => moment.at_ms >= x[0] && MOMENTS[moment.what] && !moment.what.startsWith("job")).map(({ at_ms: at, what, name }) => ({ x: at, kind: what, text: `${clock(at, x[1])}: ${name} ${MOMENTS[what]}` }));
}

function nodesOverTime(one, x) {
  const { points, about, moments } = one;
  const most = Math.max(1, ...points.map((point) => point.workers.most));
  const of = (what) => moments.filter((moment) => moment.what === what).length;
  const changes = [[of("joined"), "joined"], [of("left"), "left"], [of("lost"), "were lost"]].filter(([n]) => n > 0).map(([n, word]) => `${whole(n)} ${n === 1 && word === "were lost" ? "was lost" : word}`);
  const caption = `${isOver(about.stage) ? "At most" : about.pool ? `${count(about.pool.workers, "worker")} on ${count(about.nodes_at_work, "node")} now, at most` : "At most"} ${count(most, "worker")} at a time. ${changes.length > 0 ? `Nodes: ${changes.join(", ")}.` : "No node has come or gone while it was observed."}`;
  return chart({
    id: "nodes", group: "job", level: "h2", title: "Nodes over time", caption, xs: points.map((point) => point.at_ms), x, y: { from: 0, to: most * 1.05, format: number },
    layers: [
      { kind: "area", cls: "c1 strong", steps: "both", points: points.map((point) => [point.at_ms, 0, point.busy.last]) },
      { kind: "area", cls: "c7 hatched", steps: "both", points: points.map((point) => [point.at_ms, point.busy.last, point.workers.last]) },
      { kind: "step", cls: "c7", points: points.map((point) => [point.at_ms, point.workers.last]) },
    ],
    columns: [
      { name: "busy workers", cls: "c1 fill strong", at: (at) => whole(points[at].busy.last) },
      { name: "idle", cls: "c7 fill hatched", at: (at) => whole(Math.max(0, points[at].workers.last - points[at].busy.last)) },
      { name: "nodes", at: (at) => whole(points[at].nodes.last) },
    ],
    marks: momentMarks(one, x), height: 12,
  });
}

function rateOfWork(one, x) {
  const { points } = one;
  const values = rates(points);
  const all = values.filter(known);
  const most = Math.max(1e-9, ...all);
  const caption = all.length === 0 ? "Too little was observed to tell a rate." : `${number(points.at(-1).worked)} units of work so far; at most ${number(most)} a second, on the average ${number(all.reduce((a, b) => a + b, 0) / all.length)}.`;
  return chart({
    id: "rate", group: "job", level: "h2", title: "Rate of work", caption, xs: points.map((point) => point.at_ms), x, y: { from: 0, to: most * 1.08, format: number },
    layers: [
      { kind: "area", cls: "c6", points: points.map((point, at) => [point.at_ms, 0, values[at]]) },
      { kind: "line", cls: "c6", points: points.map((point, at) => [point.at_ms, values[at]]) },
    ],
    columns: [
      { name: "units a second", cls: "c6 line", at: (at) => (known(values[at]) ? number(values[at]) : null) },
      { name: "a worker", at: (at) => (known(values[at]) && points[at].workers.last > 0 ? number(values[at] / points[at].workers.last) : null) },
    ],
    marks: momentMarks(one, x), height: 10,
  });
}

function share(one, [from, end]) {
  const { points, about } = one;
  const left = ending(about, points);
  // The future is shown as far as the past at most.
  const to = left ? Math.min(end + (left.most ?? left.likely * 2) * 1000, end + Math.max(60_000, (end - from) * 1.2)) : end;
  const told = points.some((point) => known(point.share_least));
  const ahead = left && [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const at = end + part * (to - end);
    const by = (seconds) => Math.min(1, about.share + ((1 - about.share) * (at - end)) / 1000 / seconds);
    return [at, left.most === null ? about.share : by(left.most), by(left.least), by(left.likely)];
  });
  const caption = left ? `${percent(about.share)} of the whole is done, as the program estimates it. If it goes on like this it ends in ${duration(left.likely)}; at the pace of its slower and faster parts, ${span(left)}.`
    : `${percent(about.share)} of the whole is done, as the program estimates it.${isOver(about.stage) ? "" : " It is too early to say when it ends."}`;
  return h("div", { class: "panel", key: "share" }, chart({
    id: "share", group: "job", level: "h2", title: "Share done", caption, xs: points.map((point) => point.at_ms), x: [from, Math.max(to, from + 5_000)], y: { from: 0, to: 1, format: (value) => `${Math.round(value * 100)}\u202f%` },
    layers: [
      told && { kind: "band", cls: "c3", points: points.map((point) => [point.at_ms, point.share_least, point.share_most]) },
      ahead && { kind: "band", cls: "c3", points: ahead },
      ahead && { kind: "line", cls: "c3 dashed", points: ahead.map(([at, , , likely]) => [at, likely]) },
      { kind: "line", cls: "c3", points: points.map((point) => [point.at_ms, point.share]) },
    ].filter(Boolean),
    columns: [{ name: "share done", cls: "c3 line", at: (at) => (known(points[at].share) ? percent(points[at].share) : null) }],
    height: 10,
  }));
}

const KINDS = [["searching", "searching", "c1"], ["handling", "handling tasks", "c5"], ["looking", "looking for work", "c2"], ["starting", "starting", "c7"]];

function whereItWent({ about, detail }) {
  const went = whereTimeWent(about.figures, detail?.where_time_went);
  const title = "Where the time went";
  if (!went) return panel(title, nothing("No node reports where the time of its workers went."));
  const of = KINDS.filter(([kind]) => known(went[kind])).map(([kind, name, cls]) => ({ name, cls: `${cls} strong`, value: went[kind] }));
  const total = of.reduce((sum, part) => sum + part.value, 0);
  const caption = `${duration(total)} of workers' time, of which ${percent(went.searching / total)} went into the search.`;
  return h("section", { class: "panel", key: title, "aria-label": title }, parts({ id: "went", level: "h2", title, caption, of, format: duration }));
}

function events2({ moments, improvements }) {
  const best = improvements.slice(-6).reverse();
  return panel("What happened", best.length > 0 && h("div", null, h("h3", null, "Latest solutions"), h("ol", { class: "events" }, best.map(({ at_ms: at, value, node }) => h("li", { key: at }, moment(at, now()), h("span", null, h("b", null, known(value) ? exact(value) : "better"), node && [" by ", link("node", node)]))))), h("h3", null, "Latest events"), events(moments, 8));
}

const MARKS = { first_task: "first task", leads: "leads", improved: "improved", told_to_leave: "told to leave", lost: "saw a loss", continues: "continues a lost node's work", panicked: "a task panicked", set_aside: "set a task aside", takes_part: "takes part", joined: "joined", left: "left", abandoned: "left at its deadline", closed: "closed the job" };
const SHAPES = { improved: "best", leads: "leads", told_to_leave: "left", panicked: "lost", set_aside: "lost", lost: "lost", continues: "notice", first_task: "first" };

function nodeRows(one) {
  const known1 = one.nodes.filter((node) => node.from !== null);
  const from = Math.min(...known1.map((node) => node.from));
  const to = Math.max(from + 1, ...known1.map((node) => node.to ?? 0), isOver(one.about.stage) ? 0 : now());
  const place = (at) => `${Math.max(0, Math.min(100, ((at - from) / (to - from)) * 100)).toFixed(2)}%`;
  const bar = (node) => {
    if (node.from === null) return unknown("the node has not reported when it began");
    const end = node.state === "member" && !node.report.last ? to : (node.to ?? node.from);
    const words = node.timeline.map((event) => `${clock(event.at_ms, to)} ${MARKS[event.kind] ?? event.kind}`).join(", ");
    return h("span", { class: "life", role: "img", "aria-label": words || "no events", title: words },
      h("span", { class: `span ${node.state}`, style: { left: place(node.from), right: `calc(100% - ${place(end)})` } }),
      node.timeline.filter((event) => SHAPES[event.kind]).slice(-24).map((event) => h("span", { class: `tick ${SHAPES[event.kind]}`, style: { left: place(event.at_ms) } })));
  };
  const columns = [
    { name: "Node", sort: (node) => node.name, cell: (node) => link("node", node.name), cls: "name" },
    { name: "State", sort: (node) => node.state, cell: (node) => [state(node.state), node.leads && node.name === one.about.leader && h("span", { class: "tag" }, "leads")], cls: "mid" },
    { name: "Life", sort: (node) => node.from, cell: bar, cls: "wide-cell" },
    { name: "Busy", sort: (node) => busyShare(node.pool), cell: (node) => (node.pool ? `${whole(node.pool.busy)} / ${whole(node.pool.workers)}` : unknown("it does not work now, or does not report its pool")), cls: "num" },
    { name: "Idle time", sort: (node) => node.idle, cell: (node) => maybe(node.idle, percent, "it does not report where its time went"), cls: "num" },
    { name: "Rate", sort: (node) => node.rate, cell: (node) => maybe(node.rate, (rate) => `${number(rate)}/s`, "it has not reported long enough"), cls: "num" },
    { name: "Stolen", sort: (node) => node.figures.stolen_tasks ?? null, cell: (node) => maybe(node.figures.stolen_tasks, number, "not reported"), cls: "num" },
    { name: "Time", sort: (node) => node.seconds, cell: (node) => maybe(node.seconds, duration, "the node has not reported when it began"), cls: "num" },
  ];
  return panel("Nodes", h("p", { class: "muted" }, "Bars run from the first to the last report of a node, by its own clock. ◆ a better solution, | the first task, ▼ told to leave."),
    grid({ id: "job-nodes", label: "Nodes of this job", columns, rows: one.nodes.map((node) => ({ ...node, key: node.name })), search: (node) => `${node.name} ${node.state} ${Object.values(node.labels).join(" ")}`, empty: isOver(one.about.stage) ? "The nodes of jobs that have been over for long are forgotten." : "No node has reported yet." }));
}

function steals({ about, nodes, detail }) {
  const { requests, steals: granted, stolen_tasks: tasks, steal_times: classes } = about.figures;
  const gave = gifts(nodes);
  const format = (value) => (value > 0 ? whole(value) : "0");
  const times = (share) => maybe(quantile(classes, share), duration, "no steal was timed");
  const busiest = gave && gave.cells.flatMap((row, from) => row.map((value, to) => [value, from, to])).sort((a, b) => b[0] - a[0])[0];
  const by = gave && (gave.by === "node" ? "node" : `group of nodes by ${gave.by}`);
  return panel("Steals", figures([
    ["Tasks received", whole(tasks ?? 0)], ["Granted", requests > 0 ? percent(granted / requests) : unknown("no request was sent"), `${number(requests ?? 0)} requests`],
    ["Median", times(0.5)], ["99 of 100 within", times(0.99)],
  ]), gave ? matrix({
    id: "gifts", title: "Who fed whom", caption: busiest?.[0] > 0 ? `Most tasks went from ${gave.groups[busiest[1]]} to ${gave.groups[busiest[2]]}: ${whole(busiest[0])}.${gave.rest > 0 ? ` ${number(gave.rest)} tasks came from nodes that are not named.` : ""}` : "No node has received a task from another one.",
    names: gave.groups, cells: gave.cells, format, rowName: `from ${by}`, columnName: "to",
  }) : nothing(detail?.steals === null ? "Not known." : "No node reports from whom its tasks came, or there are too many groups."));
}

export function latencies(title, id, classes) {
  const used = classes?.some((times) => times > 0);
  if (!used) return null;
  const from = classes.findIndex((times) => times > 0);
  const to = classes.findLastIndex((times) => times > 0) + 1;
  const seen = classes.slice(from, to);
  const xs = seen.map((_, at) => at + 0.5);
  const text = (value) => `up to ${duration(classEnd(from + Math.min(seen.length - 1, Math.max(0, Math.floor(value)))))}`;
  const total = seen.reduce((a, b) => a + b, 0);
  return chart({
    id, title, caption: `${whole(total)} requests: half of them took up to ${duration(quantile(classes, 0.5))}, 99 of 100 up to ${duration(quantile(classes, 0.99))}.`, xs, x: [0, seen.length], isTime: false, xName: "time", xFormat: text,
    y: { from: 0, to: Math.max(...seen) * 1.1, format: number }, layers: [{ kind: "bars", cls: "c1", points: seen.map((times, at) => [at, at + 1, times]) }],
    columns: [{ name: "requests", cls: "c1 fill strong", at: (at) => whole(seen[at]) }], height: 8,
  });
}

function zookeeper({ about }) {
  const { requests, latencies: took, figures: done } = about;
  const all = (requests?.reads ?? 0) + (requests?.writes ?? 0) + (requests?.multis ?? 0) + (requests?.failed_multis ?? 0);
  return panel("ZooKeeper", figures([
    ["Requests", whole(all), `${number(requests?.reads ?? 0)} reads, ${number(requests?.writes ?? 0)} writes, ${number(requests?.multis ?? 0)} multis`],
    ["Transactions", whole(done.transactions ?? 0), done.tasks > 0 ? `${number((done.transactions / done.tasks) * 1000)} a thousand tasks` : null],
    ["Repeated", whole(done.retries ?? 0), done.transactions > 0 ? percent(done.retries / done.transactions) : null],
    ["Recovered", whole(done.recovered ?? 0), "tasks of nodes that are gone"],
  ]), latencies("Writes", "zk-writes", took?.writes) ?? nothing("No node reports how long its requests took."), latencies("Reads", "zk-reads", took?.reads));
}

// The calls of a workflow by task.
function workflow(summary) {
  if (!Array.isArray(summary?.tasks)) return null;
  const calls = (task) => ["waiting", "ready", "running", "ended", "failed", "cancelled"].reduce((all, kind) => all + (task[kind] ?? 0), 0);
  const cell = (kind) => ({ name: kind[0].toUpperCase() + kind.slice(1), sort: (task) => task[kind] ?? 0, cell: (task) => whole(task[kind] ?? 0), cls: "num" });
  const columns = [
    { name: "Task", sort: (task) => task.at, cell: (task) => task.task, cls: "name" },
    { name: "Ended", sort: (task) => task.ended / calls(task), cell: (task) => [meter(task.ended / calls(task)), ` ${whole(task.ended)} of ${whole(calls(task))}`], cls: "wide-cell" },
    cell("running"), cell("ready"), cell("waiting"), cell("failed"), cell("retries"),
    { name: "Mean time", sort: (task) => (task.runs > 0 ? task.total_ns / task.runs : null), cell: (task) => (task.runs > 0 ? duration(task.total_ns / task.runs / 1e9) : unknown("no call has ended yet")), cls: "num" },
    { name: "Moved", sort: (task) => task.moved_bytes ?? 0, cell: (task) => bytes(task.moved_bytes ?? 0), cls: "num" },
  ];
  return panel("Workflow", grid({ id: "workflow", label: "Calls by task", columns, rows: summary.tasks.map((task, at) => ({ ...task, at, key: `${at} ${task.task}` })) }));
}
