// The documents that a running job makes on request: shown on its page, or saved as a file. Those that are to be shown without a
// click are requested again and again while the page is open.

import { isMoving, requestDocument } from "./data.js";
import { choice, choose, h } from "./dom.js";
import { drawing, figures, muted, nothing, panel } from "./parts.js";
import { isOver } from "./text.js";
import { saveFile } from "./save.js";

// The offered documents with a button each. A record has no nodes to ask, so it names the command.
export function documentsOf(id, offers, stage) {
  if (offers.length === 0 || isOver(stage)) return null;
  if (!isMoving()) return panel("Documents", nothing(`The command taskwork job ${id} prints them with these options.`), figures(offers.map(({ name, label, argument }) => [`--show ${name}${argument === null ? "" : ` --about ${argument}`}`, label])));
  return panel("Documents", h("ul", { class: "documents" }, offers.map((offer) => h("li", { key: offer.name }, request(id, offer)))), offers.filter(({ shown }) => !shown).map((offer) => shownDocument(id, offer)));
}

// The time between two requests for a document that is shown without a click.
const AGAIN_MS = 15_000;
// The times of the last requests.
const renewedAt = new Map();

// The documents that are shown without a click, each in a panel.
export function liveDocuments(id, offers, stage) {
  if (!isMoving() || isOver(stage)) return null;
  return offers.filter(({ shown }) => shown).map((offer) => {
    const key = stateOf(id, offer.name);
    const { isAsked, why, made } = choice(key, {});
    if (!isAsked && stage === "running" && !document.hidden && !(performance.now() - renewedAt.get(key) < AGAIN_MS)) renew(id, offer, null);
    return (made || why) && panel(offer.label, made ? shownDocument(id, offer) : nothing(`It is not shown: ${why}.`));
  });
}

// Requests a document. The last one is kept until the next one arrives.
async function renew(id, { name }, argument) {
  const key = stateOf(id, name);
  const { made: last } = choice(key, {});
  renewedAt.set(key, performance.now());
  // Not while the page is being drawn.
  await null;
  choose(key, { isAsked: true, made: last });
  const answer = requestDocument(id, name, argument);
  choose(key, await answer.then((made) => ({ made }), (error) => ({ why: error.message, made: last })));
}

const stateOf = (id, name) => `document:${id}:${name}`;

function request(id, { name, label, argument, shown }) {
  const key = stateOf(id, name);
  const { isAsked, why, made } = choice(key, {});
  const typed = choice(`about:${key}`, "");
  const send = (event) => {
    event.preventDefault();
    renew(id, { name }, argument === null ? null : typed.trim());
  };
  const isReady = !isAsked && (argument === null || typed.trim() !== "");
  return h("form", { onsubmit: send },
    argument !== null && h("label", null, h("span", { class: "hidden" }, `${argument} for ${name}`), h("input", { type: "text", size: "6", placeholder: argument, value: typed, oninput: (event) => choose(`about:${key}`, event.target.value) })),
    h("button", { type: "submit", "aria-disabled": String(!isReady), onclick: (event) => isReady || event.preventDefault() }, !isAsked ? `${shown ? "Refresh" : "Show"} ${name}` : `Requesting ${name} …`),
    made && h("button", { type: "button", class: "quiet", onclick: () => saveFile(name.includes(".") ? name : `${name}.txt`, made.content) }, `Save ${name}`),
    muted(label), why && !shown && h("p", { class: "bad", role: "alert" }, why));
}

// Graphs for Graphviz and data are for other programs: they are only saved.
function shownDocument(id, { name, label }) {
  const { made } = choice(stateOf(id, name), {});
  if (!made) return null;
  if (made.format === "svg") return h("div", { key: name }, drawing(label, made.content));
  if (made.format === "text") return h("pre", { key: name, class: "scroll", tabindex: "0", role: "region", "aria-label": label }, made.content);
  return h("p", { key: name, class: "muted" }, `${name} is for other programs: save it.`);
}
