// Where the pages have their data from: a server that sends what changes, or the page itself. Nothing else knows which.

// What is known: the snapshot, the details of jobs by their ids, and how current that is.
export const data = { view: null, snapshot: null, details: new Map(), isLive: false, brokenSince: null, why: "", nowMs: 0, gotAt: 0 };

const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 15_000;
// A server says something every 10 s; after this it is taken for gone.
const SILENT_MS_MAX = 25_000;

let changed = () => {};
let watched = null;
let stream = null;
let retryMs = RETRY_MS_MIN;
let retryTimer = 0;

// Begins to fetch; `onChange` is called whenever something is different.
export function open(onChange) {
  changed = onChange;
  const embedded = document.getElementById("data");
  if (embedded) {
    const { view, job } = JSON.parse(embedded.textContent);
    take(view);
    if (job) data.details.set(String(job.id ?? job.job?.id ?? Object.keys(data.snapshot.jobs)[0]), job);
    changed();
    return;
  }
  data.isLive = true;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  if (!document.hidden) connect();
}

// Says which job is looked at; null for none.
export function watch(job) {
  if (watched === job) return;
  watched = job;
  if (data.isLive && stream) connect();
}

// The time by the observer's clock, in milliseconds since 1970. It stands still in what was recorded.
export const now = () => data.nowMs + (data.isLive ? performance.now() - data.gotAt : 0);

// Since when what is shown is not current any more, and why; null if it is current.
export function stale() {
  if (data.brokenSince !== null) return { since: data.brokenSince, why: data.why };
  const since = data.view?.stale_since_ms ?? data.snapshot?.cluster?.silent_since_ms;
  return typeof since === "number" ? { since, why: "ZooKeeper has not answered" } : null;
}

function take(view) {
  data.view = view;
  data.snapshot = view.snapshot;
  data.snapshot.members = bare(data.snapshot.members);
  data.snapshot.jobs = bare(data.snapshot.jobs);
  for (const job of Object.values(data.snapshot.jobs)) job.nodes = bare(job.nodes);
  setClock(view.now_ms ?? view.snapshot.cluster?.at_ms);
}

// Things by name in an object without a prototype: a name may be anything, `constructor` too.
const bare = (things) => Object.assign(Object.create(null), things);

function setClock(ms) {
  // The clock does not jump about with the delay of messages.
  if (typeof ms === "number" && !(Math.abs(ms - now()) < 1_500)) [data.nowMs, data.gotAt] = [ms, performance.now()];
}

function close() {
  clearTimeout(retryTimer);
  stream?.abort();
  stream = null;
}

async function connect() {
  close();
  const mine = (stream = new AbortController());
  try {
    if (!data.snapshot) take(await fetchJson("api/view", mine.signal));
    if (watched !== null) await fetchDetail(watched, mine.signal);
    changed();
    await follow(mine);
    throw new Error("the dashboard's server has ended the connection");
  } catch (error) {
    if (stream !== mine) return;
    close();
    data.brokenSince ??= now() || Date.now();
    data.why = error.cause ? error.message : "the dashboard's server has not answered";
    retryTimer = setTimeout(connect, retryMs);
    retryMs = Math.min(RETRY_MS_MAX, retryMs * 2);
    changed();
  }
}

async function fetchJson(path, signal) {
  const answer = await fetch(path, { signal, headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(`the dashboard's server answers ${answer.status} (${(await answer.text()).slice(0, 200) || answer.statusText})`, { cause: answer.status });
  return answer.json();
}

async function fetchDetail(job, signal) {
  try {
    data.details.set(job, await fetchJson(`api/job/${encodeURIComponent(job)}`, signal));
  } catch (error) {
    // The snapshot may know less of the job, but that is shown.
    if (error.cause !== 404) throw error;
  }
}

// Reads events until the stream ends. It is not an `EventSource`, since that can begin only where it was itself.
async function follow(mine) {
  const topics = watched === null ? "view" : `view,job:${watched}`;
  const headers = { accept: "text/event-stream", "last-event-id": String(data.snapshot.seq ?? data.view.seq) };
  const answer = await fetch(`events?topics=${encodeURIComponent(topics)}`, { headers, signal: mine.signal });
  if (!answer.ok) throw new Error(`the dashboard's server answers ${answer.status} (${(await answer.text()).slice(0, 200)})`, { cause: answer.status });
  [data.brokenSince, retryMs] = [null, RETRY_MS_MIN];
  changed();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => reader.cancel().catch(() => {}), SILENT_MS_MAX);
    const { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const events = (rest + value.replaceAll("\r", "")).split("\n\n");
    rest = events.pop();
    for (const event of events) await handle(event, mine.signal);
    if (events.length > 0) changed();
  }
}

async function handle(text, signal) {
  const event = { event: "message", data: "" };
  for (const line of text.split("\n")) {
    const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === "data") event.data += (event.data && "\n") + value;
    else if (field) event[field] = value;
  }
  const content = event.data ? JSON.parse(event.data) : null;
  if (event.event === "stale") data.view.stale_since_ms = content?.stale_since_ms ?? content?.since_ms ?? now();
  else if (event.event === "fresh") data.view.stale_since_ms = null;
  else if (event.event === "job" && content) {
    const id = String(content.id ?? content.job?.id ?? watched);
    data.details.set(id, content);
  } else if (event.event === "view" && content) {
    if (content.snapshot) take(content);
    else if (content.since === undefined || content.since === data.snapshot.seq) apply(data.snapshot, content);
    // Something is missing in between.
    else if (content.seq > data.snapshot.seq) take(await fetchJson("api/view", signal));
  }
}

const MOMENTS_MAX = 1_000;

// Makes a snapshot the later one that a change leads to.
export function apply(snapshot, delta) {
  snapshot.seq = delta.seq;
  snapshot.cluster = delta.cluster;
  setClock(delta.cluster.at_ms);
  applyChanges(snapshot.members, delta.members);
  for (const job of delta.jobs_gone ?? []) {
    delete snapshot.jobs[job];
    data.details.delete(job);
  }
  for (const [id, change] of Object.entries(delta.jobs ?? {})) {
    const job = (snapshot.jobs[id] ??= { about: { stage: "unreadable" }, nodes: bare(), series: { step_ms: 1_000, points: [] } });
    if (change.about) job.about = change.about;
    applyChanges(job.nodes, change.nodes);
    if (change.series) {
      const points = job.series?.points ?? [];
      job.series = { step_ms: change.series.step_ms, points: [...points.slice(0, change.series.kept), ...change.series.points] };
    }
  }
  snapshot.moments = [...(snapshot.moments ?? []), ...(delta.moments ?? [])].slice(-MOMENTS_MAX);
  if (delta.warnings) snapshot.warnings = delta.warnings;
}

function applyChanges(things, changes) {
  for (const name of changes?.gone ?? []) delete things[name];
  Object.assign(things, changes?.set ?? {});
}
