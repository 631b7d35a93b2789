// The queue: how many pods wait in each part and for each reason, and the pods.
//
// A queue of up to MOST pods is here as a whole, and is filtered and sorted here. Of a longer one the host filters and
// sorts, and the page has MOST pods at a time.

import { count, el, keepChoices, podLink, setText, span } from "./dom.js";
import { List } from "./list.js";

const PARTS = {
  active: "Active",
  backoff: "Backoff",
  unschedulable: "Unschedulable",
  gated: "Gated",
  incomplete: "Incomplete groups",
  pending: "Beside a running group",
};
const MOST = 10000;
// A queue that goes up and down by a few pods changes the way only once.
const WHOLE_AGAIN = 9000;
const REASONS_SHOWN = 30;
const TYPED_MS = 300;
const ORDERS = {
  oldest: ["oldest first", (a, b) => compare(a.created, b.created) || compare(a.key, b.key)],
  newest: ["newest first", (a, b) => compare(b.created, a.created) || compare(a.key, b.key)],
  attempts: ["most attempts first", (a, b) => b.attempts - a.attempts || compare(a.key, b.key)],
  priority: ["highest priority first", (a, b) => b.priority - a.priority || compare(a.created, b.created)],
  name: ["by name", (a, b) => compare(a.key, b.key)],
};

const FIRST_ORDER = "oldest";

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

function number(value) {
  return value.toLocaleString("en");
}

function said(reason) {
  return [reason.plugin, reason.text].filter(Boolean).join(": ");
}

/** Return why a pod waits; made once for each version of its row. */
function why(pod) {
  pod.why ??= said(pod.reason);
  return pod.why;
}

export function queueView(main, _parts, given, { say, title, watch }) {
  const chosen = {
    part: Object.hasOwn(PARTS, given.get("part") ?? "") ? given.get("part") : "",
    reason: given.get("reason") ?? "",
    text: given.get("contains") ?? "",
    order: Object.hasOwn(ORDERS, given.get("order") ?? "") ? given.get("order") : FIRST_ORDER,
    offset: 0,
  };
  let state = { value: {}, rows: new Map(), at: null };
  let all = 0;
  let isWhole = true;
  let asked = "";
  let isAnswered = false;
  let typing = 0;
  let stop = () => {};
  const list = new List("Pods of the queue", [
    { title: "Pod", width: "23%", text: (pod) => pod.key, link: (pod) => podLink(pod.key) },
    { title: "Part", width: "16%", text: (pod) => PARTS[pod.part] ?? pod.part },
    { title: "Reason", width: "26%", text: why },
    { title: "Attempts", width: "10%", number: true, text: (pod) => String(pod.attempts) },
    { title: "Priority", width: "8%", number: true, text: (pod) => String(pod.priority) },
    { title: "Age", width: "8%", number: true, text: (pod) => span(pod.created, state.at) },
    { title: "Retry in", width: "9%", number: true, text: (pod) => (pod.retryAt ? span(state.at, pod.retryAt) : "") },
  ]);
  const parts = Object.fromEntries(["", ...Object.keys(PARTS)].map((part) => {
    const shown = el("span", { class: "count" }, "0");
    const button = el("button", { type: "button", "aria-pressed": "false", "data-part": part || "all" },
      `${PARTS[part] ?? "All"} `, shown);
    button.addEventListener("click", () => choose({ part, reason: "" }));
    return [part, { button, shown }];
  }));
  const reasons = el("tbody");
  const every = el("button", { type: "button", hidden: true }, "Show every reason");
  every.addEventListener("click", () => choose({ reason: "" }));
  const more = el("p", { class: "soft", hidden: true });
  const text = el("input", { type: "search", id: "queue-text", autocomplete: "off", spellcheck: "false", value: chosen.text });
  text.addEventListener("input", () => choose({ text: text.value.trim() }, TYPED_MS));
  const order = el("select", { id: "queue-order" },
    Object.entries(ORDERS).map(([name, [label]]) => el("option", { value: name }, label)));
  order.value = chosen.order;
  order.addEventListener("change", () => choose({ order: order.value }));
  const summary = el("p", { class: "soft" }, "reading the queue");
  const back = pageButton("Previous pods", -MOST);
  const forth = pageButton("Next pods", MOST);
  const pager = el("div", { class: "turns", role: "group", "aria-label": "Pages of the queue", hidden: true }, back, forth);
  const reasonTable = el("table", {},
    el("caption", {}, "Why pods wait"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Reason"), el("th", { scope: "col", class: "number" }, "Pods"))),
    reasons);
  main.append(title("Queue"),
    el("div", { class: "controls" },
      el("div", { class: "parts", role: "group", "aria-label": "Part of the queue" },
        Object.values(parts).map((part) => part.button)),
      el("label", { for: "queue-text" }, "Name or reason contains", text),
      el("label", { for: "queue-order" }, "Order", order)),
    el("div", { class: "pager" }, summary, pager),
    el("div", { class: "split" },
      el("section", { class: "reasons", "aria-label": "Reasons" }, reasonTable, more, every),
      list.element));

  // A button that is off keeps the keyboard, so it is not `disabled`.
  function pageButton(label, step) {
    const button = el("button", { type: "button" }, label);
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") !== "true") choose({ offset: chosen.offset + step });
    });
    return button;
  }

  /** Change what is shown. `wait`: ms until the host is asked. */
  function choose(changes, wait = 0) {
    Object.assign(chosen, { offset: 0 }, changes);
    clearTimeout(typing);
    typing = wait ? setTimeout(settle, wait) : 0;
    if (!wait) settle();
    filter();
  }

  /** Keep in the address what the user chose, and ask for it. */
  function settle() {
    keepChoices("/queue", { part: chosen.part, reason: chosen.reason, contains: chosen.text,
      order: chosen.order === FIRST_ORDER ? "" : chosen.order });
    ask();
  }

  /** Watch what is chosen, if it is not watched yet. */
  function ask() {
    typing = 0;
    const query = { limit: MOST };
    if (!isWhole) {
      query.order = chosen.order;
      for (const [name, value] of [["part", chosen.part], ["reason", chosen.reason], ["contains", chosen.text],
        ["offset", chosen.offset]]) if (value) query[name] = value;
    }
    const wanted = JSON.stringify(query);
    if (wanted === asked) return;
    asked = wanted;
    isAnswered = false;
    stop();
    stop = watch("queue", query, show);
  }

  /** Return [reason, number of pods] of the chosen part, most pods first, and how many reasons there are. */
  function countReasons(rows) {
    if (!isWhole) {
      const { value } = state;
      return [(value.reasons ?? []).map((one) => [said(one), one.pods]), value.reasonCount ?? 0];
    }
    const found = new Map();
    for (const pod of rows) {
      const reason = why(pod);
      found.set(reason, (found.get(reason) ?? 0) + 1);
    }
    return [[...found].sort((a, b) => b[1] - a[1] || compare(a[0], b[0])), found.size];
  }

  function drawReasons(rows) {
    const [found, total] = countReasons(rows);
    const most = found.slice(0, REASONS_SHOWN);
    const focused = document.activeElement?.dataset?.reason;
    while (reasons.children.length > most.length) reasons.lastChild.remove();
    while (reasons.children.length < most.length) {
      const button = el("button", { type: "button" });
      button.addEventListener("click", () => choose({ reason: chosen.reason === button.dataset.reason ? "" : button.dataset.reason }));
      reasons.append(el("tr", {}, el("th", { scope: "row" }, button), el("td", { class: "number" })));
    }
    most.forEach(([reason, pods], index) => {
      const button = reasons.children[index].firstChild.firstChild;
      button.dataset.reason = reason;
      setText(button, reason || "no reason");
      button.setAttribute("aria-pressed", String(chosen.reason === reason));
      setText(reasons.children[index].lastChild, number(pods));
      // The order changes while the page is read: the keyboard stays with its reason.
      if (focused !== undefined && reason === focused) button.focus();
    });
    more.hidden = total <= most.length;
    setText(more, `and ${count(total - most.length, "other reason")}, which the search finds`);
  }

  function filter() {
    for (const [part, { button }] of Object.entries(parts)) button.setAttribute("aria-pressed", String(part === chosen.part));
    const inPart = [...state.rows.values()].filter((pod) => !chosen.part || pod.part === chosen.part);
    drawReasons(inPart);
    every.hidden = !chosen.reason;
    const words = chosen.text.toLowerCase();
    const shown = inPart.filter((pod) => {
      if (chosen.reason && why(pod) !== chosen.reason) return false;
      return !words || pod.key.toLowerCase().includes(words) || why(pod).toLowerCase().includes(words);
    });
    shown.sort(ORDERS[chosen.order][1]);
    if (!state.value.parts) return;
    list.set(shown, all ? "No pod is as asked for." : "No pod waits.");
    summarize(shown.length);
  }

  function summarize(shown) {
    const { matching = 0, offset = 0 } = state.value;
    pager.hidden = isWhole || matching <= MOST;
    if (!isAnswered) {
      setText(summary, "asking the scheduler");
      return;
    }
    if (isWhole) {
      setText(summary, `${count(shown, "pod")} shown of ${number(all)}`);
      return;
    }
    const range = shown ? `Pods ${number(offset + 1)} to ${number(offset + shown)} of` : "No pod of";
    setText(summary, `${range} ${number(matching)}${matching < all ? ` that match, and ${number(all)} in all` : ""}`);
    back.setAttribute("aria-disabled", String(offset === 0));
    forth.setAttribute("aria-disabled", String(offset + MOST >= matching));
  }

  function show(now) {
    state = now;
    if (!now.changed) {
      list.draw();
      return;
    }
    const numbers = now.value.parts ?? {};
    all = 0;
    for (const [part, pods] of Object.entries(numbers)) {
      all += pods;
      if (!parts[part]) continue;
      setText(parts[part].shown, number(pods));
      // Two parts exist for pod groups alone.
      parts[part].button.hidden = !pods && part !== chosen.part && ["incomplete", "pending"].includes(part);
    }
    setText(parts[""].shown, number(all));
    isWhole = all <= (isWhole ? MOST : WHOLE_AGAIN);
    // The last pods may have left the queue.
    if (isWhole || chosen.offset >= (now.value.matching ?? 0)) chosen.offset = 0;
    isAnswered = true;
    filter();
    if (!typing) ask();
    say(`${count(all, "pod")} in the queue: ${Object.entries(numbers).filter(([, pods]) => pods)
      .map(([part, pods]) => `${pods} ${(PARTS[part] ?? part).toLowerCase()}`).join(", ") || "none"}`);
  }

  ask();
  return () => {
    clearTimeout(typing);
    stop();
    list.close();
  };
}
