// One pod: where it is, its attempts, what each plugin said of the nodes, scores, nearest fit, timeline.

import { amount, clock, count, el, facts, long, redraw, setText, span, table } from "./dom.js";

const ATTEMPTS = 5;
const NAMES_SHOWN = 50;
const NEAREST_SHOWN = 10;
const REASONS_SHOWN = 100;
const SAID_LETTERS = 300;
const GOOD = ["bound", "binding", "scheduling", "scheduled"];
const BAD = ["unschedulable", "error", "rejected", "failed"];
export const COLOURS = ["#2a78b5", "#c26a13", "#2f8f4e", "#a0439b", "#b3333b", "#6a6f1a", "#4c5bd4", "#8a5a2b", "#0f8a8a", "#7a7a7a"];

/** Return a text in the colour of a state; the word itself says it, too. */
export function stateText(state) {
  const kind = GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "warn";
  return el("span", { class: `state ${kind}` }, state);
}

/** Return the names of nodes, to open. `of`: what the nodes have in common, and no other list of the view. */
function nodeNames(names, of) {
  const more = names.length - NAMES_SHOWN;
  return el("details", { class: "nodes", "data-name": of },
    el("summary", {}, count(names.length, "node")),
    el("p", { class: "names" }, names.slice(0, NAMES_SHOWN).join(", ")
      + (more > 0 ? ` and ${more.toLocaleString("en")} more: the map of nodes has them all` : "")));
}

function section(name, ...children) {
  return el("section", { "aria-label": name }, el("h2", {}, name), children);
}

function head(value) {
  const now = value.answeredAt;
  const queue = value.queue ?? {};
  return facts([
    ["State", stateText(value.state)],
    ["Message", long(value.message, "message")],
    ["Node", value.node],
    ["Nominated to", value.nominatedNode],
    ["Scheduler", value.schedulerName],
    ["Attempts", String(value.attempts)],
    ["In this part since", queue.since && `${clock(queue.since, now)} (${span(queue.since, value.answeredAt)})`],
    ["Tried again", queue.retryAt && `at the latest at ${clock(queue.retryAt, now)}, in ${span(now, queue.retryAt)}`],
    ["Rejected by", queue.rejectedBy?.join(", ")],
    ["Gated by", queue.gatedBy && [queue.gatedBy, queue.gateMessage].filter(Boolean).join(": ")],
    ["Group", queue.group && el("a", { href: groupLink(queue.group) }, queue.group)],
    ["Held room", value.heldRoom && `${count(value.heldRoom.pods, "place")} for ${value.heldRoom.group}`],
    ["Waits at Permit", value.permit && `for ${value.permit.plugins.join(", ")}, until ${clock(value.permit.until, now)}`],
    ["May be requeued by", value.requeueEvents.length
      && [...new Set(value.requeueEvents.map((one) => `${one.resource} ${one.actions.join("|")}`))].join(", ")],
  ].map(([name, fact]) => [name, fact || null]));
}

/** Return the link of a group's view. `key`: KIND/NAMESPACE/NAME. */
function groupLink(key) {
  const [kind, ...names] = key.split("/");
  return `#/groups/${names.map(encodeURIComponent).join("/")}?kind=${encodeURIComponent(kind)}`;
}

function verdicts(value, map) {
  const name = "Verdicts of plugins";
  const latest = value.lastAttempts[0];
  if (!latest) return section(name, el("p", { class: "soft" }, "The pod was not tried yet."));
  if (!value.nodes) return section(name, el("p", { class: "soft" }, `Attempt ${latest.attempt} tried no node.`));
  const counts = `${value.feasible} of ${count(value.nodes, "node")} passed every filter in attempt ${latest.attempt}`;
  if (!value.rejections.length) {
    const dropped = latest.node && value.feasible < value.nodes
      ? [" The scheduler keeps no rejections of an attempt that chose a node; ", el("a", { href: map }, "the map of nodes"),
        " has what the plugins say now."] : null;
    return section(name, el("p", {}, `${counts}.`, dropped));
  }
  const all = value.rejections.length;
  const more = all > REASONS_SHOWN ? `; the ${REASONS_SHOWN} most frequent of ${count(all, "reason")}` : "";
  return section(name, table(`${counts}${more}`,
    [{ title: "Plugin" }, { title: "Reason", isText: true }, { title: "Rejected" }],
    value.rejections.slice(0, REASONS_SHOWN).map((one) =>
      [one.plugin, one.reason, nodeNames(one.nodes, `${one.plugin}: ${one.reason}`)])));
}

function scores(value) {
  if (!value.scores.length) return null;
  const plugins = [...new Set(value.scores.flatMap((one) => Object.keys(one.plugins)))];
  const colours = Object.fromEntries(plugins.map((name, index) => [name, COLOURS[index % COLOURS.length]]));
  const most = Math.max(1, ...value.scores.map((one) => one.total));
  const key = (name) => {
    const box = el("i", { class: "key", "aria-hidden": "true" });
    box.style.background = colours[name];
    return box;
  };
  const bar = (one) => {
    const parts = el("div", { class: "bars", "aria-hidden": "true" });
    for (const [name, score] of Object.entries(one.plugins)) {
      const part = el("i");
      part.style.width = `${(100 * Math.max(0, score.normalized * score.weight)) / most}%`;
      part.style.background = colours[name];
      parts.append(part);
    }
    return parts;
  };
  const text = (score) => (score ? `${score.normalized * score.weight} (raw ${score.raw}, weight ${score.weight})` : "");
  const rows = [
    ["Score as a bar", ...value.scores.map(bar)],
    ["Total", ...value.scores.map((one) => String(one.total))],
    ...plugins.map((name) => [el("span", {}, key(name), name), ...value.scores.map((one) => text(one.plugins[name]))]),
  ];
  // The scheduler keeps the first of the best nodes, and chooses any of those with the highest total.
  const chosen = value.lastAttempts[0]?.node;
  const equal = chosen && !value.scores.some((one) => one.node === chosen) ? `; ${chosen}, which was chosen, has the same total` : "";
  return section("Scores", table(`The best nodes; each plugin's part is its normalized score times its weight${equal}`,
    [{ title: "Plugin" }, ...value.scores.map((one) => ({ title: one.node === chosen ? `${one.node} (chosen)` : one.node }))], rows));
}

function nearest(value) {
  if (!value.nearestFit.length) return null;
  const all = value.nearestFit.length;
  const shown = value.nearestFit.slice(0, NEAREST_SHOWN);
  return section("Nearest fit", table(`What the nodes lack for this pod${all > shown.length ? `, the nearest ${shown.length} of ${all}` : ""}`,
    [{ title: "What is missing" }, { title: "Lacking" }, { title: "Nodes" }],
    shown.map((one) => [
      one.text,
      Object.entries(one.lacking).map(([name, lacking]) => `${name} ${amount(name, lacking)}`).join(", "),
      nodeNames(one.nodes, `lacking: ${one.text}`),
    ])));
}

function attempts(value) {
  if (!value.lastAttempts.length) return null;
  return section("Attempts", table("The last attempts, the latest first",
    [{ title: "Attempt" }, { title: "Outcome" }, { title: "Began" }, { title: "Took", number: true }, { title: "Feasible" },
      { title: "Node" }, { title: "Message", isText: true }],
    value.lastAttempts.map((one) => [
      String(one.attempt), stateText(one.outcome), clock(one.startedAt, value.answeredAt), `${one.durationMs} ms`,
      `${one.feasible} of ${one.nodes}`, one.node ?? one.nominatedNode ?? "",
      long([one.message, ...one.notes].filter(Boolean).join("; "), `message of attempt ${one.attempt}`),
    ])));
}

function timeline(value) {
  if (!value.timeline.length) return null;
  return section("Timeline", el("ol", { class: "timeline" }, value.timeline.map((one, index) => el("li", {},
    el("time", { datetime: one.time }, clock(one.time, value.answeredAt)), el("span", { class: "step" }, one.step),
    long(one.text, `timeline ${index}`)))));
}

export function podView(main, [namespace, name], query, { say, title, watch }) {
  const node = query.get("node") ?? "";
  const key = `${namespace}/${name}`;
  const path = [namespace, name].map(encodeURIComponent).join("/");
  const asked = el("input", { id: "pod-node", value: node, autocomplete: "off", spellcheck: "false" });
  const map = `#/nodes?pod=${encodeURIComponent(key)}`;
  const form = el("form", { class: "controls" },
    el("label", { for: "pod-node" }, "Why not on the node", asked), el("button", {}, "Ask"),
    el("a", { href: map }, "Show the pod on the map of nodes"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = asked.value.trim();
    location.hash = `/pods/${path}${wanted ? `?node=${encodeURIComponent(wanted)}` : ""}`;
  });
  const answer = el("p", { class: "answer", hidden: true });
  const body = el("div", {}, el("p", { class: "soft" }, "reading the pod"));
  main.append(title(`Pod ${key}`), form, answer, body);
  const stop = watch(`pods/${path}`, { attempts: ATTEMPTS, ...(node ? { node } : {}) }, ({ value, at, changed }) => {
    if (!changed) return;
    const shown = { ...value, answeredAt: at };
    answer.hidden = !value.onNode;
    if (value.onNode) setText(answer, value.onNode.text);
    redraw(body, [head(shown), nearest(shown), verdicts(shown, map), scores(shown), attempts(shown), timeline(shown)]);
    say(`${key} is ${value.state}: ${value.message.slice(0, SAID_LETTERS)}`);
  });
  return stop;
}
