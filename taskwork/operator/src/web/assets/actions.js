// Actions of operators on a job or a node: buttons, if the server allows actions and an operator has signed in, and always
// the equivalent command lines.

import { data, isMoving } from "./data.js";
import { choice, choose, h, redraw } from "./dom.js";
import { muted, nothing } from "./parts.js";
import { isOver, sign } from "./text.js";

const ACTION_MS_MAX = 90_000;
// Sessions expire, and the server may be restarted.
const LEARNED_MS_MAX = 60_000;
const LEARN_AGAIN_MS = 5_000;

// Whether the server allows actions (null until known), the signed-in operator, the time of the next query, the running
// action, and the results by job or node.
const desk = { allowed: null, operator: null, isAsking: false, askAt: 0, doing: null, outcomes: new Map() };

// The session from the sign-in. Cookies are sent to all ports of a host, but the storage of a page is private to it, and
// survives a reload.
const KEPT = "taskwork-operator";
let session = null;

function keptSession() {
  try {
    session ??= sessionStorage.getItem(KEPT);
  } catch {
    // Without permission to store, the session is lost with the page.
  }
  return session;
}

function keepSession(value) {
  session = value;
  try {
    if (value === null) sessionStorage.removeItem(KEPT);
    else sessionStorage.setItem(KEPT, value);
  } catch {
    // The session is lost with the page.
  }
}

// Sends a query to the server, or an action with a JSON `body`.
async function askServer(path, body) {
  const headers = { ...(keptSession() && { "x-taskwork-session": keptSession() }), ...(body && { "content-type": "application/json", "x-taskwork-action": "1" }) };
  const post = body && { method: "POST", body };
  const answer = await fetch(`api/operator${path}`, { ...post, headers, signal: AbortSignal.timeout(ACTION_MS_MAX) });
  const text = await answer.text();
  if (answer.status === 401) desk.operator = null;
  if (!answer.ok) throw new Error(text.trim().slice(0, 1_000) || `the dashboard's server has answered ${answer.status}`);
  return JSON.parse(text);
}

// Queries the allowed actions, unless that was done shortly before.
async function learn() {
  if (desk.isAsking || performance.now() < desk.askAt) return;
  desk.isAsking = true;
  const before = desk.operator;
  // After a failed query the state is unchanged.
  const told = await askServer("").catch(() => null);
  // An operator who has signed in since keeps the session.
  if (told && desk.operator === before && desk.doing !== "operator") [desk.allowed, desk.operator] = [told.allowed, told.operator ?? null];
  [desk.isAsking, desk.askAt] = [false, performance.now() + (told ? LEARNED_MS_MAX : LEARN_AGAIN_MS)];
  redraw();
}

// Performs an action, given as JSON, and shows its result.
async function perform(about, path, body, then) {
  if (desk.doing) return;
  desk.doing = about;
  desk.outcomes.delete(about);
  redraw();
  try {
    const told = await askServer(`/${path}`, body);
    then?.(told);
    if (told.said) desk.outcomes.set(about, { isGood: true, text: told.said });
  } catch (error) {
    const text = error.name === "TimeoutError" ? "the dashboard's server has not answered; it may still be done" : error instanceof TypeError ? "the dashboard's server could not be reached" : error.message;
    desk.outcomes.set(about, { isGood: false, text });
  }
  desk.doing = null;
  redraw();
}

// Quotes a word for a shell.
const quoted = (text) => (/^[\w./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const isPrintable = (text) => !/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text);

// Returns a command line; null if it cannot be written on one line. It always names the cluster, since the user's shell may
// have another one in TASKWORK_CLUSTER.
function commandLine(...parts) {
  const cluster = (data.view?.cluster ?? "").replace(/^\/taskwork\//, "");
  const all = ["taskwork", ...parts, ...(cluster ? ["--cluster", cluster] : [])];
  return all.every(isPrintable) ? all.map(quoted).join(" ") : null;
}

async function copy(key, command) {
  // Without access to the clipboard, the text can be selected.
  const isCopied = await navigator.clipboard?.writeText(command).then(() => true, () => false);
  choose(`copied:${key}`, isCopied ? "Copied" : "Mark the text to copy it");
}

const focused = (element) => requestAnimationFrame(() => element.focus());

// Returns the id of an element without the blanks that names may contain.
const idOf = (...names) => names.join("-").replace(/[^\w-]/g, "_");

// Returns a command line with a copy button.
function toCopy(key, name, command) {
  if (!command) return muted("its name does not fit into a command line");
  return h("span", { class: "command" }, h("code", null, command), h("button", { type: "button", class: "quiet", "aria-label": `Copy the command: ${name}`, onclick: () => copy(key, command) }, "Copy"), h("span", { class: "muted", role: "status" }, choice(`copied:${key}`, "")));
}

// The form of a button: it asks for a confirmation or for input. The input is sent as converted by `json`.
function form(about, { name, what, body, ask, confirm, field, fieldName, long, command, json = JSON.stringify }, close) {
  const [key, id] = [`typed:${about}:${what}`, idOf("typed", about, what)];
  const typed = choice(key, "");
  const wrong = choice(`wrong:${key}`, "");
  const send = (event) => {
    event.preventDefault();
    try {
      // The current value of the field may not have been drawn yet.
      const all = [...Object.entries(body).map(([part, value]) => [part, JSON.stringify(value)]), ...(field ? [[field, json(event.target.elements[id].value)]] : [])];
      choose(`wrong:${key}`, "");
      perform(about, what, `{${all.map(([part, value]) => `${JSON.stringify(part)}:${value}`).join(",")}}`, () => [choose(key, ""), close()]);
    } catch (error) {
      choose(`wrong:${key}`, error.message);
    }
  };
  // A handler that returned false would suppress the input.
  const escape = (event) => {
    if (event.key === "Escape") close();
  };
  const input = field && h(long ? "textarea" : "input", { id, key, value: typed, rows: long && "5", spellcheck: long && "false", maxlength: long ? null : "500", "aria-invalid": wrong ? "true" : null, "aria-describedby": wrong ? `wrong-${id}` : null, ref: focused, oninput: (event) => choose(key, event.target.value) });
  return h("form", { class: "act", key: `form ${what}`, "aria-label": name, onsubmit: send, onkeydown: escape },
    h("p", null, ask), field && h("p", null, h("label", { for: id }, fieldName)), input,
    wrong && h("p", { class: "bad", role: "alert", id: `wrong-${id}` }, wrong),
    h("p", { class: "tools" }, h("button", { type: "submit", class: long ? "" : "danger", ref: field ? null : focused, "aria-disabled": desk.doing ? "true" : null }, desk.doing === about ? "Wait …" : confirm), h("button", { type: "button", onclick: close }, "Back")),
    toCopy(`${about}:${what}:form`, name, command(typed)));
}

function signIn() {
  const typed = choice("typed:operator", "");
  const enter = (event) => {
    event.preventDefault();
    // The current value may not have been drawn yet: password managers fill in and submit at once.
    perform("operator", "sign-in", JSON.stringify({ token: event.target.elements["operator-token"].value }), (told) => {
      desk.operator = told.operator;
      keepSession(told.session);
      choose("typed:operator", "");
      focusOnActions();
    });
  };
  return h("form", { class: "act", key: "sign in", "aria-label": "Sign in as an operator", onsubmit: enter },
    h("p", null, h("label", { for: "operator-token" }, "To perform these actions here, sign in with an operator’s token:")),
    h("p", { class: "tools" }, h("input", { id: "operator-token", type: "password", autocomplete: "current-password", required: true, value: typed, oninput: (event) => choose("typed:operator", event.target.value) }), h("button", { type: "submit", "aria-disabled": desk.doing ? "true" : null }, "Sign in")),
    outcome("operator"));
}

const signOut = () => perform("operator", "sign-out", "{}", () => {
  desk.operator = null;
  keepSession(null);
  focusOnActions();
});

// The focused element is replaced by the next drawing.
const focusOnActions = () => setTimeout(() => document.getElementById("actions")?.focus(), 100);

function outcome(about) {
  const came = desk.outcomes.get(about);
  // The element exists before its text, since screen readers only announce changes.
  return h("p", { class: came && !came.isGood ? "bad" : "", role: came && !came.isGood ? "alert" : "status", key: `outcome ${about}` }, came && [sign(came.isGood ? "✓" : "✕", came.isGood ? "good" : "bad"), ` ${came.text}`]);
}

// The actions { name, what, body, command(typed), ask, field, … } for a job or node; those with `ask` open a form.
function actions(about, all) {
  if (!data.isLive || !isMoving() || all.length === 0) return null;
  learn();
  const opened = choice(`form:${about}`, null);
  const close = () => {
    choose(`form:${about}`, null);
    // The focus returns to the button of the form, once it is drawn.
    setTimeout(() => document.getElementById(idOf("act", about, opened))?.focus(), 100);
  };
  const isOn = desk.allowed && desk.operator !== null;
  const press = (one) => (one.ask ? choose(`form:${about}`, opened === one.what ? null : one.what) : perform(about, one.what, JSON.stringify(one.body)));
  const row = (one) => h("li", { key: one.what },
    isOn ? h("button", { type: "button", id: idOf("act", about, one.what), "aria-expanded": one.ask ? String(opened === one.what) : null, "aria-disabled": desk.doing ? "true" : null, onclick: () => press(one) }, `${one.name}${one.ask ? " …" : ""}`) : h("span", null, one.name),
    isOn && opened === one.what ? form(about, one, close) : toCopy(`${about}:${one.what}`, one.name, one.command("")));
  return closed(h("ul", { class: "acts" }, all.map(row)), nothing(SERVERS), outcome(about),
    desk.allowed === null ? null : !desk.allowed ? nothing("Actions are disabled, since the dashboard was started without --allow-actions. Use the commands instead.")
      : isOn ? h("div", { class: "tools" }, muted(`Signed in as ${desk.operator}.`), h("button", { type: "button", class: "quiet", onclick: signOut }, "Sign out"), outcome("operator")) : signIn());
}

const SERVERS = "A command uses the ZooKeeper servers of its option --zk, or of TASKWORK_ZK in its environment.";

// A collapsible panel.
const closed = (...content) => h("details", { class: "panel", key: "Actions" }, h("summary", { id: "actions" }, h("h2", null, "Actions")), content);

// Sends JSON as typed: parsing could change numbers.
function checkedJson(text) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`That is no JSON: ${error.message}`);
  }
  return text;
}

export function actionsOfJob(id, { stage }) {
  if (isOver(stage) || stage === "unreadable") return null;
  const body = { job: id };
  const all = [
    ["running", "queued"].includes(stage) && { name: "Suspend", what: "suspend", body, command: () => commandLine("suspend", id) },
    stage === "suspended" && { name: "Resume", what: "resume", body, command: () => commandLine("resume", id) },
    { name: "Cancel", what: "cancel", body, confirm: "Cancel the job", ask: "The job ends without a result, and cannot be resumed.", field: "reason", fieldName: "Reason, which is recorded with the job", command: (reason) => commandLine("cancel", id, ...(reason.trim() ? ["--reason", reason.trim()] : [])) },
    stage === "running" && { name: "Inject", what: "inject", body, confirm: "Send it", ask: "A suggestion, usually a solution. The program of the job checks it, and answers whether it was accepted.", field: "suggestion", fieldName: "Suggestion, in JSON", long: true, json: checkedJson, command: () => commandLine("inject", id, "suggestion.json") },
  ];
  return actions(`job ${id}`, all.filter(Boolean));
}

export function actionsOfNode(name, member) {
  if (!member) return null;
  if (member.draining) return isMoving() ? closed(nothing("It was asked to leave. A second request makes it leave at once, and park its tasks:"), toCopy(`node ${name}:again`, "let it leave at once", commandLine("drain", name)), nothing(SERVERS)) : null;
  return actions(`node ${name}`, [{ name: "Drain", what: "drain", body: { node: name }, confirm: "Let it leave", ask: "The node hands its unfinished tasks over to others, and leaves the cluster.", command: () => commandLine("drain", name, "--wait") }]);
}
