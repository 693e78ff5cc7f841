// The pages beside that of a job: overview, nodes, one node, jobs, servers, history.

import { spark } from "./charts.js";
import { data, now } from "./data.js";
import { h } from "./dom.js";
import { latencies } from "./job.js";
import { busyShare, ending, job, jobs, members, programs, rateNow, rates, times, warnings } from "./model.js";
import { events, figures, grid, jobLink, link, nothing, panel } from "./parts.js";
import { bytes, clock, count, duration, exact, isOver, known, maybe, meter, moment, number, percent, state, unknown, whole } from "./text.js";

const SIGNS = { bad: "✕", warn: "▲", info: "ℹ" };
const WORDS = { bad: "Error", warn: "Warning", info: "Note" };

export function overview() {
  const found = warnings();
  const all = programs();
  const nodes = members();
  const open = jobs().filter((one) => !isOver(one.about.stage));
  const running = open.filter((one) => one.about.stage === "running").length;
  const workers = nodes.reduce((sum, node) => sum + (node.workers ?? 0), 0);
  return {
    title: "Overview",
    lead: [h("span", null, count(nodes.length, "node")), h("span", null, count(workers, "worker")), h("span", null, `${count(running, "job")} running`), open.length > running && h("span", null, `${whole(open.length - running)} waiting`)],
    content: [
      h("section", { class: `warnings ${found[0]?.level ?? "none"}`, "aria-label": "Warnings", key: "warnings" },
        found.length === 0 ? h("p", null, h("span", { "aria-hidden": "true", class: "sign" }, "✓"), "Nothing needs attention.")
          : h("ul", null, found.slice(0, 12).map(({ level, text, href }) => h("li", { key: text, class: level }, h("span", { "aria-hidden": "true", class: "sign" }, SIGNS[level]), h("span", null, h("span", { class: "hidden" }, `${WORDS[level]}: `), h("a", { href }, text))))),
        found.length > 12 && h("p", { class: "muted" }, `and ${found.length - 12} more`)),
      all.length === 0 ? nothing("No node is a member of this cluster, and no job is open.") : h("section", { "aria-label": "Programs", key: "programs" }, h("h2", { class: "between" }, "Programs"), h("ul", { class: "programs" }, all.map(program))),
      h("div", { class: "pair", key: "pair" },
        panel("Jobs that wait", waiting(open)),
        panel("Latest events", events(data.snapshot.moments ?? [], 8))),
    ],
  };
}

function program({ key, program: name, version, nodes, workers, running, queued }) {
  // A program may work on several jobs; those beyond the first have lines of their own.
  const shown = running.length > 0 ? running : [null];
  return h("li", { key, class: "panel" },
    h("div", { class: "program" }, h("h3", null, name, " ", h("span", { class: "muted" }, version)), h("span", { class: "muted" }, `${count(nodes, "node")}, ${count(workers, "worker")}${queued > 0 ? `, ${count(queued, "job")} waiting` : ""}`)),
    shown.map((one) => (one ? runningJob(job(one.id)) : h("p", { class: "muted", key: "idle" }, nodes > 0 ? "Its nodes have no job." : "No node runs it."))));
}

function runningJob({ id, about, points }) {
  const end = ending(about, points);
  return h("div", { class: "line", key: id },
    h("div", { class: "who" }, jobLink(id), h("span", { class: "muted" }, maybe(times(about).seconds, (s) => `for ${duration(s)}`, "its record does not say when it began"))),
    figures([
      ["Busy", maybe(busyShare(about.pool), (share) => [percent(share), meter(share)], "no node at work reports its pool")],
      ["Share done", maybe(about.share, (share) => [percent(share), meter(share, "c3")], "the program does not estimate how much is done")],
      ["Best", maybe(about.best, exact, "no solution is known yet, or solutions have no numbers")],
      ["Gap", maybe(about.gap, percent, "the best solution or its bound is not known")],
      ["Ends in", end ? duration(end.likely) : unknown("too early to say")],
      ["Rate", maybe(rateNow(points), (rate) => `${number(rate)}/s`, "too little was observed")],
    ]), spark(rates(points).slice(-120)));
}

const waits = (open) => open.filter((one) => one.about.stage !== "running").reverse();

function waiting(open) {
  const list = waits(open);
  if (list.length === 0) return nothing("No job waits.");
  return h("ol", { class: "events" }, list.slice(0, 8).map(({ id, about }) => h("li", { key: id }, state(about.stage), h("span", null, jobLink(id), about.record && h("span", { class: "muted" }, ` ${about.record.program} ${about.record.program_version}`)))));
}

function why({ about }) {
  const { stage, missing, record } = about;
  if (missing) return missing;
  if (stage === "waiting") return ["after ", (record?.after ?? []).map((id, at) => [at > 0 && ", ", jobLink(id)])];
  const reasons = { queued: "its nodes work on earlier jobs", suspended: "an operator has suspended it", submitting: "its data is being written", abandoned: "its submitter is gone", unreadable: "its record cannot be read", running: "" };
  return record?.reason ?? reasons[stage] ?? "";
}

const jobColumns = () => ({
  job: { name: "Job", sort: ({ about, id }) => about.record?.name || id, cell: ({ id }) => jobLink(id), cls: "name" },
  program: { name: "Program", sort: ({ about }) => about.record?.program ?? null, cell: ({ about }) => (about.record ? `${about.record.program} ${about.record.program_version}` : unknown("its record cannot be read")), cls: "mid" },
  state: { name: "State", sort: ({ about }) => about.stage, cell: ({ about }) => state(about.stage), cls: "mid" },
  submitted: { name: "Submitted", sort: ({ about }) => about.record?.submitted_ms ?? null, cell: ({ about }) => (about.record ? moment(about.record.submitted_ms, now(), false) : unknown("its record cannot be read")), cls: "time" },
  who: { name: "By", sort: ({ about }) => about.record?.submitter ?? null, cell: ({ about }) => about.record?.submitter ?? "", cls: "mid" },
  share: { name: "Done", sort: ({ about }) => about.share ?? null, cell: ({ about }) => maybe(about.share, percent, "the program does not estimate how much is done"), cls: "num" },
  why: { name: "Why it waits", cell: why, cls: "wide-cell" },
  took: { name: "Took", sort: ({ about }) => times(about).seconds, cell: ({ about }) => maybe(times(about).seconds, duration, "its record does not say when it ended"), cls: "num" },
  best: { name: "Best", sort: ({ about }) => about.best ?? null, cell: ({ about }) => maybe(about.best, exact, "solutions have no numbers, or none was found"), cls: "num" },
  units: { name: "Units of work", sort: ({ about }) => about.figures.worked, cell: ({ about }) => number(about.figures.worked), cls: "num" },
  attempts: { name: "Attempts", sort: ({ about }) => about.record?.attempt ?? null, cell: ({ about }) => maybe(about.record?.attempt, whole, "its record cannot be read"), cls: "num" },
});

const keyed = (list) => list.map((one) => ({ ...one, key: one.id ?? one.name }));
const searchJob = ({ id, about }) => `${id} ${about.record?.name} ${about.record?.program} ${about.record?.submitter} ${about.stage}`;

export function queue() {
  const of = jobColumns();
  const open = jobs().filter((one) => !isOver(one.about.stage));
  return {
    title: "Jobs",
    lead: [h("span", null, count(open.length, "open job"))],
    content: [h("div", { class: "panel", key: "jobs" }, grid({ id: "queue", label: "Open jobs", columns: [of.job, of.state, of.program, of.share, of.why, of.submitted, of.who], rows: keyed(open), search: searchJob, sorted: [5, 1], empty: "No job is open." }))],
  };
}

export function history() {
  const of = jobColumns();
  const over = jobs().filter((one) => isOver(one.about.stage));
  return {
    title: "History",
    lead: [h("span", null, count(over.length, "job"), " over")],
    content: [h("div", { class: "panel", key: "jobs" }, grid({ id: "history", label: "Jobs that are over", columns: [of.job, of.state, of.program, of.submitted, of.took, of.best, of.units, of.attempts, of.who], rows: keyed(over), search: searchJob, sorted: [3, -1], empty: "No job is over." }))],
  };
}

// The job that a node works on, by the names of nodes.
function works() {
  const found = new Map();
  for (const { id, about, nodes } of jobs()) {
    if (about.stage !== "running") continue;
    for (const [name, node] of Object.entries(nodes ?? {})) if (node.state === "member" && !node.report?.last) found.set(name, { id, report: node.report });
  }
  return found;
}

export function nodes() {
  const at = works();
  const rows = members().map((node) => ({ ...node, key: node.name, work: at.get(node.name) }));
  const of = ({ work }) => work?.report?.process;
  const columns = [
    { name: "Node", sort: (node) => node.name, cell: (node) => link("node", node.name), cls: "name" },
    { name: "State", sort: (node) => String(node.draining), cell: (node) => state(node.draining ? "draining" : "member"), cls: "mid" },
    { name: "Program", sort: (node) => node.program ?? null, cell: (node) => (node.program ? `${node.program} ${node.program_version}` : unknown("what it says of itself cannot be read")), cls: "mid" },
    { name: "Job", sort: (node) => node.work?.id ?? null, cell: (node) => (node.work ? jobLink(node.work.id) : h("span", { class: "muted" }, "none")), cls: "mid" },
    { name: "Workers", sort: (node) => node.workers ?? null, cell: (node) => maybe(node.workers, whole, "it does not say"), cls: "num" },
    { name: "Busy", sort: (node) => busyShare(node.work?.report?.pool), cell: (node) => maybe(busyShare(node.work?.report?.pool), percent, "it works on nothing, or does not report its pool"), cls: "num" },
    { name: "Load", sort: (node) => of(node)?.load ?? null, cell: (node) => maybe(of(node)?.load, (load) => load.toFixed(1), "it works on nothing, or its system does not tell"), cls: "num" },
    { name: "Memory", sort: (node) => of(node)?.resident_bytes ?? null, cell: (node) => maybe(of(node)?.resident_bytes, bytes, "it works on nothing, or its system does not tell"), cls: "num" },
    { name: "Seen for", sort: (node) => -node.since_ms, cell: (node) => duration(Math.max(0, now() - node.since_ms) / 1000), cls: "num" },
  ];
  const { nodes_joined: joined, nodes_left: left, nodes_lost: lost } = data.snapshot.cluster;
  return {
    title: "Nodes",
    lead: [h("span", null, count(rows.length, "node")), h("span", null, `${whole(joined)} joined, ${whole(left)} left, ${whole(lost)} lost while observed`)],
    content: [h("div", { class: "panel", key: "nodes" }, grid({ id: "nodes", label: "Nodes", columns, rows, search: (node) => `${node.name} ${node.program} ${Object.values(node.labels ?? {}).join(" ")}`, empty: "No node is a member." }))],
  };
}

export function node(name) {
  const member = members().find((one) => one.name === name);
  const parts = jobs().map(({ id, about, nodes: all }) => ({ id, key: id, about, part: all?.[name] })).filter(({ part }) => part);
  const work = works().get(name);
  if (!member && parts.length === 0) return { title: "Unknown node", content: [nothing(`No node ${name} is known: it may have gone long ago.`)] };
  const gone = parts.some(({ part }) => part.state === "lost") ? "lost" : "left";
  const labels = Object.entries(member?.labels ?? {});
  const process = work?.report?.process;
  const timeline = parts.flatMap(({ id, part }) => (part.report?.timeline ?? []).map((event) => ({ ...event, id }))).sort((a, b) => a.at_ms - b.at_ms);
  const of = jobColumns();
  const figure = (title, value, cell = number) => ({ name: title, sort: ({ part }) => value(part.report) ?? null, cell: ({ part }) => maybe(value(part.report), cell, "it has not reported it"), cls: "num" });
  const columns = [of.job, { name: "Part", sort: ({ part }) => part.state, cell: ({ part }) => state(part.state), cls: "mid" }, of.program, figure("Units of work", (report) => report?.figures?.worked), figure("Tasks", (report) => report?.figures?.tasks), figure("Stolen", (report) => report?.figures?.stolen_tasks), figure("Repeats", (report) => report?.figures?.retries)];
  return {
    title: name,
    lead: [state(member ? (member.draining ? "draining" : "member") : gone), member?.program && h("span", null, `${member.program} ${member.program_version}`)],
    content: [
      h("section", { class: "panel", "aria-label": "Figures", key: "figures" }, figures([
        ["Job", work ? jobLink(work.id) : "none"],
        ["Leads", member?.leads?.length > 0 ? member.leads.map((id, at) => [at > 0 && ", ", jobLink(id)]) : "nothing"],
        ["Workers", maybe(member?.workers, whole, "it is no member"), work?.report?.pool && `${whole(work.report.pool.busy)} busy, ${count(work.report.pool.queued, "task")} queued`],
        ["Memory", maybe(process?.resident_bytes, bytes, "it works on nothing, or its system does not tell"), member?.memory_bytes > 0 && `of ${bytes(member.memory_bytes)}`],
        ["Load", maybe(process?.load, (load) => load.toFixed(1), "it works on nothing, or its system does not tell")],
        ["Processor time", maybe(process?.cpu_ms, (ms) => duration(ms / 1000), "it works on nothing, or its system does not tell")],
        ["Address", member?.address ?? unknown(member ? "it does not listen" : "it is no member")],
        ["Started", member?.started_ms ? moment(member.started_ms, now()) : unknown("it is no member"), member && "by its own clock"],
        ["Labels", labels.length > 0 ? labels.map(([label, value]) => h("span", { class: "tag" }, `${label}=${value}`)) : "none"],
      ], "main")),
      panel("Jobs", grid({ id: "node-jobs", label: "Its part in jobs", columns, rows: parts, search: searchJob })),
      panel("Timeline", timeline.length === 0 ? nothing("It has reported no events.") : h("ol", { class: "events" }, timeline.slice(-40).reverse().map(({ at_ms: at, kind, detail, id }, key) => h("li", { key: `${timeline.length - key}` }, moment(at, now()), h("span", null, kind.replaceAll("_", " "), detail && `: ${detail}`, h("span", { class: "muted" }, " in ", jobLink(id))))))),
    ],
  };
}

export function servers() {
  const { cluster, warnings: unreadable } = data.snapshot;
  const sum = { reads: 0, writes: 0, multis: 0, failed_multis: 0 };
  const took = { reads: [], writes: [] };
  for (const { about } of jobs()) {
    for (const kind in sum) sum[kind] += about.requests?.[kind] ?? 0;
    for (const kind in took) (about.latencies?.[kind] ?? []).forEach((times, at) => (took[kind][at] = (took[kind][at] ?? 0) + times));
  }
  const list = Object.entries(unreadable ?? {}).map(([path, text]) => ({ key: path, text }));
  return {
    title: "ZooKeeper",
    lead: [state(known(cluster.silent_since_ms) ? "failed" : "running"), h("span", null, known(cluster.silent_since_ms) ? `no answer since ${clock(cluster.silent_since_ms, now())}` : "it answers")],
    content: [
      h("section", { class: "panel", "aria-label": "Figures", key: "figures" }, figures([
        ["Outages seen", whole(cluster.outages ?? 0)],
        ["Events seen", number(cluster.events ?? 0), "by this observer"],
        ["Reads", number(sum.reads), "by nodes, for the jobs that are known"],
        ["Writes", number(sum.writes)], ["Multis", number(sum.multis), `${number(sum.failed_multis)} failed`],
        ["Unreadable", count(list.length, "znode")],
        ["Servers", unknown("the servers' own figures are not asked for")],
      ], "main")),
      h("div", { class: "pair", key: "pair" }, panel("Writes", latencies("How long writes took", "all-writes", took.writes) ?? nothing("No node reports how long its requests took.")), panel("Reads", latencies("How long reads took", "all-reads", took.reads) ?? nothing("No node reports how long its requests took."))),
      list.length > 0 && panel("What cannot be read", grid({ id: "unreadable", label: "Znodes that cannot be read", rows: list, search: ({ key, text }) => key + text, columns: [{ name: "Znode", sort: (row) => row.key, cell: (row) => row.key, cls: "name" }, { name: "What is wrong", cell: (row) => row.text, cls: "wide-cell" }] })),
    ],
  };
}
