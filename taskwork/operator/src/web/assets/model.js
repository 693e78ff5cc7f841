// Values for the pages, derived from the snapshot. An unknown value is null.

import { data, now } from "./data.js";
import { count, duration, isOver, known, quantile, total, whole } from "./text.js";

const orNull = (value) => (known(value) ? value : null);

export const jobName = (id, about) => about?.record?.name || id;
// Several jobs may have the same name.
export const jobWithId = (id, about) => (jobName(id, about) === id ? id : `${jobName(id, about)} (${id})`);
export const release = (of) => `${of.program} ${of.program_version}`;

// Caches the result of `make` for each tick.
function ofTick(make) {
  let [snapshot, seq, made] = [null, null, null];
  return () => {
    if (data.snapshot !== snapshot || data.snapshot.seq !== seq) [snapshot, seq, made] = [data.snapshot, data.snapshot.seq, make(data.snapshot)];
    return made;
  };
}

export const members = ofTick((snapshot) => Object.entries(snapshot.members).map(([name, now]) => ({ ...now, ...now.member, name, key: name })));

// The state of a member.
export const standing = ({ draining, cordoned }) => (draining ? "leaving" : cordoned ? "cordoned" : "member");

// The jobs in the order of submission.
export const jobs = ofTick((snapshot) => {
  const all = Object.entries(snapshot.jobs).map(([id, job]) => ({ ...job, id, key: id }));
  return all.sort((a, b) => (a.about.record?.submitted_ms ?? 0) - (b.about.record?.submitted_ms ?? 0) || (a.id < b.id ? -1 : 1));
});

export const openJobs = () => jobs().filter(({ about }) => !isOver(about.stage));

// The start and the end of a job, or the present time; and the duration in seconds.
export function times({ stage, record }) {
  const from = orNull(record?.submitted_ms);
  const to = isOver(stage) ? orNull(record?.finished_ms) : now();
  return { from, to, seconds: from !== null && to !== null ? Math.max(0, (to - from) / 1000) : null };
}

// The share of workers with a task.
export const busy = (pool) => (pool?.workers > 0 ? pool.busy / pool.workers : null);

// The programs and versions with members or open jobs.
export function programs() {
  const found = new Map();
  const of = (what) => {
    const key = release(what);
    if (!found.has(key)) found.set(key, { key, members: [], running: [], waiting: [] });
    return found.get(key);
  };
  for (const member of members()) if (member.program !== undefined) of(member).members.push(member);
  for (const job of openJobs()) if (job.about.record) of(job.about.record)[job.about.stage === "running" ? "running" : "waiting"].push(job);
  return [...found.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
}

const PROGRAMS_MAX = 5;

// The busy workers of each program at the points of the cluster; of many programs those with the least work are merged.
export const busyByProgram = ofTick((snapshot) => {
  const { points } = snapshot.workers;
  const found = new Map();
  for (const { about: { record }, series: { points: own, step_ms: step } } of jobs()) {
    if (!record || own.length === 0) continue;
    const sum = found.get(record.program) ?? points.map(() => 0);
    found.set(record.program, sum);
    let at = 0;
    for (const [index, { at_ms: time }] of points.entries()) {
      while (own[at + 1]?.at_ms <= time) at += 1;
      if (own[at].at_ms <= time && (at + 1 < own.length || time - own[at].at_ms <= 2 * step)) sum[index] += own[at].busy.last;
    }
  }
  const ranked = [...found].map(([name, busy]) => ({ name, busy })).sort((a, b) => total(b.busy) - total(a.busy));
  const named = ranked.slice(0, PROGRAMS_MAX);
  // Jobs are measured at other moments than the cluster, and the history of early ones is forgotten.
  const rest = points.map((point, index) => Math.max(0, point.busy.last - total(named, ({ busy }) => busy[index])));
  return total(rest) > 0.01 * total(points, (point) => point.busy.last) ? [...named, { name: "others", busy: rest }] : named;
});

// The activities of the workers in seconds, and their sum; null if not reported.
export function spent({ times: of }) {
  const went = Object.fromEntries(["searching", "handling", "looking", "starting"].map((kind) => [kind, (of?.[`${kind}_ns`] ?? 0) / 1e9]));
  const all = total(Object.values(went));
  return all > 0 ? { ...went, all } : null;
}

// Nodes report every two seconds and points are one second apart, so shorter windows would show bursts.
const RATE_MS = 6000;

// The rate of work up to each point over the window, in units per second.
export function rates(points) {
  let first = 0;
  return points.map((point, at) => {
    while (first + 1 < at && point.at_ms - points[first + 1].at_ms >= RATE_MS) first += 1;
    const [from, to] = [points[first], at === 0 ? points[1] : point];
    return to?.at_ms > from.at_ms ? (Math.max(0, to.worked - from.worked) / (to.at_ms - from.at_ms)) * 1000 : null;
  });
}

export const rateNow = (points) => rates(points.slice(-1 - RATE_MS / 1000)).at(-1) ?? null;

// The distance of a value from the bound, as a share of the value; null if one of them is unknown.
export const gapOf = (best, bound) => (known(best) && known(bound) ? Math.abs(best - bound) / Math.max(Math.abs(best), 1e-10) : null);

// The data of a job; null if unknown. The finders of solutions and the picture are only in its details.
export function job(id) {
  const detail = data.details.get(`job/${encodeURIComponent(id)}`);
  const own = data.snapshot.jobs[id];
  if (!own) return null;
  const { about, series: { points } } = own;
  const { from, to } = times(about);
  const nodes = Object.entries(own.nodes).map(([name, node]) => nodeOf(name, node, from));
  const names = new Set([id, ...nodes.map((node) => node.name)]);
  const moments = data.snapshot.moments.filter(({ at_ms: at, what, name }) => at >= (from ?? 0) && (at <= (to ?? Infinity) || name === id) && (what.startsWith("servers") || names.has(name)));
  const finders = new Map(detail?.improvements?.map(({ value, node }) => [value, node]));
  const better = points.filter((point, at) => known(point.best) && point.best !== points[at - 1]?.best);
  // Of an unobserved job, only the times and nodes of better solutions are known.
  const improvements = better.length > 0 ? better.map(({ at_ms, best, bound }) => ({ at_ms, value: best, gap: gapOf(best, bound), node: finders.get(best) })) : (detail?.improvements ?? []);
  return { id, about, points, nodes, moments, improvements, detail };
}

// The derived data of nodes. Nodes without a new report keep their objects.
const made = new WeakMap();

function nodeOf(name, node, began) {
  const member = data.snapshot.members[name];
  if (!made.has(node) || made.get(node).member !== member) made.set(node, { ...readNode(name, node, member, began), member });
  return made.get(node);
}

// A node may have joined the cluster long before it received a task of the job.
function readNode(name, { state, report }, member, began) {
  const { figures = {}, timeline = [], at_ms: reported } = report ?? {};
  const [first, task] = [timeline[0], timeline.find(({ kind }) => kind === "first_task")];
  const from = task?.at_ms ?? (first ? Math.max(first.at_ms, began ?? 0) : null);
  const to = timeline.find(({ kind }) => kind === "left" || kind === "abandoned")?.at_ms ?? reported ?? null;
  const seconds = from !== null && to > from ? (to - from) / 1000 : null;
  const went = spent(figures);
  return {
    name, key: name, report: report ?? {}, figures, timeline, from, to, seconds, labels: member?.member?.labels ?? {},
    // The nodes of a job that is over are not observed any more.
    state: state !== "member" ? state : member ? standing(member) : "left", idle: went && 1 - went.searching / went.all, rate: seconds && known(figures.worked) ? figures.worked / seconds : null,
  };
}

const GROUPS_MAX = 32;
const GIFTS_MS = 10_000;
let given = { of: null, at: 0, made: null };

// The numbers of tasks moved between nodes in a job. Adding them up is slow, so for many nodes it is done rarely.
export function giftsOf(id, nodes) {
  const isOld = nodes.length <= GROUPS_MAX || given.of !== id || performance.now() - given.at > GIFTS_MS;
  if (isOld) given = { of: id, at: performance.now(), made: gifts(nodes) };
  return given.made;
}

// The numbers of tasks moved between nodes, or between groups of many nodes. Null if not reported, or too many.
function gifts(nodes) {
  const takers = nodes.filter((node) => node.report.givers);
  const names = [...new Set(takers.flatMap((node) => [node.name, ...node.report.givers.most.map((giver) => giver.node)]))].sort();
  const size = Math.ceil(names.length / GROUPS_MAX);
  const label = size > 1 && ["zone", "rack", "machine"].find((one) => nodes.some((node) => node.labels[one]));
  const labels = new Map(nodes.map((node) => [node.name, node.labels[label]]));
  const group = new Map(names.map((name, at) => [name, size === 1 ? name : label ? (labels.get(name) ?? "others") : `${names[at - (at % size)]} …`]));
  const groups = [...new Set(group.values())].sort();
  if (groups.length === 0 || groups.length > GROUPS_MAX) return null;
  const place = new Map(groups.map((name, at) => [name, at]));
  const cells = groups.map(() => groups.map(() => 0));
  for (const taker of takers) for (const { node, tasks } of taker.report.givers.most) cells[place.get(group.get(node))][place.get(group.get(taker.name))] += tasks;
  return { groups, cells, by: size === 1 ? "" : label ? `, by ${label}` : `, ${size} nodes each`, rest: total(takers, (taker) => taker.report.givers.rest) };
}

const HUNGRY_SHARE_MAX = 0.1;
const WRITE_SECONDS_MAX = 0.2;
const STUCK_MS_MAX = 60_000;
// The time for which the loss of a node stays a warning: the others continue its work within seconds.
const LOST_SHOWN_MS = 15 * 60_000;
const some = (names) => `${names.slice(0, 3).join(", ")}${names.length > 3 ? ", …" : ""}`;

// The times at which this page first saw the present warnings, by their keys.
let seen = new Map();

// The warnings, the most important ones first: { key, level, text, href, at_ms }, with the start of the condition, or the time
// at which this page first saw it.
export function warnings() {
  const found = { bad: [], warn: [], info: [] };
  const before = seen;
  seen = new Map();
  const warn = (level, kind, text, href, at) => {
    const key = `${kind} ${href}`;
    seen.set(key, at ?? before.get(key) ?? now());
    found[level].push({ key, level, text, href, at_ms: seen.get(key) });
  };
  for (const { id, about, series, nodes } of openJobs()) {
    const { stage, missing, set_aside: aside, pool, open_tasks: open, latencies } = about;
    const name = `Job ${jobWithId(id, about)}`;
    const say = (level, kind, text, at) => warn(level, kind, name + text, `#/job/${encodeURIComponent(id)}`, at);
    if (stage === "abandoned") say("bad", "abandoned", ": its submission was not completed, and its submitter is gone");
    if (missing) say("warn", "missing", ` waits: ${missing}`, about.record?.submitted_ms);
    const failed = Object.keys(aside ?? {}).length;
    if (failed > 0) say("bad", "aside", ` continues without ${count(failed, "task")} that failed with several nodes`);
    if (pool?.hungry > pool?.workers * HUNGRY_SHARE_MAX) say("warn", "hungry", `: ${whole(pool.hungry)} of ${count(pool.workers, "worker")} ${pool.hungry === 1 ? "has" : "have"} no task${known(open) ? `, ${count(open, "open task")} left` : ""}`);
    const slow = quantile(latencies?.writes, 0.99);
    if (slow > WRITE_SECONDS_MAX) say("warn", "slow", `: 1 % of the writes to ZooKeeper take ${duration(slow)} or longer`);
    const points = series?.points ?? [];
    // The work is unknown while ZooKeeper does not answer.
    const idle = points.length > 0 && !known(data.snapshot.cluster.silent_since_ms) ? points.at(-1).at_ms - points.find((point) => point.worked === points.at(-1).worked).at_ms : 0;
    if (stage === "running" && idle > STUCK_MS_MAX) say("warn", "idle", ` has done no work for ${duration(idle / 1000)}`, points.at(-1).at_ms - idle);
    const all = Object.entries(nodes ?? {}).filter(([, node]) => node.state === "member");
    for (const [node, { report }] of all) {
      if (report.silent?.length > 0) warn("warn", "silent", `Node ${node}: a task has not reacted to a request to stop for ${duration((report.at_ms - report.silent[0].since_ms) / 1000)}`, `#/node/${encodeURIComponent(node)}`);
    }
    const unprotected = all.filter(([, { report }]) => report.ledger?.unprotected).map(([node]) => node);
    if (unprotected.length > 0) say("warn", "unprotected", ` begins again if one of these is lost, which hold more than is written down: ${some(unprotected)}`);
  }
  const { warnings: unpriced = [], an_hour: prices = {} } = data.snapshot.costs?.about ?? {};
  if (unpriced.length > 0) warn("warn", "prices", `Prices that cannot be read: ${some(unpriced)}`, "#/costs");
  if (Object.keys(prices).length > 1) warn("info", "currencies", `Nodes have prices in ${Object.keys(prices).join(", ")}: costs are not added up`, "#/costs");
  const lost = new Map(data.snapshot.moments.filter(({ what, at_ms: at }) => what === "lost" && now() - at < LOST_SHOWN_MS).map((moment) => [moment.name, moment]));
  for (const [node, { at_ms: at, member }] of lost) warn("warn", "lost", `Node ${node}${member?.host ? ` on ${member.host}` : ""} was lost; others continue its work`, `#/node/${encodeURIComponent(node)}`, at);
  const cordoned = members().filter((member) => member.cordoned && !member.draining).map((member) => member.name);
  if (cordoned.length > 0) warn("info", "cordoned", `${count(cordoned.length, "node is", "nodes are")} cordoned: ${some(cordoned)}`, "#/nodes");
  const leaving = members().filter((member) => member.draining).map((member) => member.name);
  if (leaving.length > 0) warn("info", "leaving", `${count(leaving.length, "node was", "nodes were")} asked to leave: ${some(leaving)}`, "#/nodes");
  const unreadable = Object.entries(data.snapshot.warnings);
  if (unreadable.length > 0) warn("warn", "unreadable", `${count(unreadable.length, "znode")} cannot be read: ${some(unreadable.map((one) => one.join(": ")))}`, "#/zookeeper");
  return Object.values(found).flat();
}
