// The nodes: a heat map by how much of a resource is requested, or by the score of a pod; and the same as a table.
//
// About a pod there are two answers: what the plugins say now, for which the host is asked once (`fit`), and what the
// pod's last attempt found, of which the host keeps the rejections and the scores of three nodes.

import { amount, clock, count, el, facts, keepChoices, podField, podLink, setText } from "./dom.js";
import { colour, HeatMap, ink } from "./heat.js";
import { List } from "./list.js";

const SCORE = "score";
const SCORE_BY = "score by ";
// None of them is a colour of a value. Equal ones are told apart by their letter.
const REJECTED = ["#a3141d", "#8a4a12", "#b02a75", "#5c5f66", "#c04a3a"];
const NO_VERDICT = { verdict: "", plugin: "", reason: "", score: null, scores: null };
const COLUMNS = ["cpu", "memory", "pods"];
// Columns of the table by number.
const FIRST_USED = 2;
const SCORED = 6;
const NOW = "now";
const LAST = "last";

/** Return a row of an answer as an object: rows are lists, in the order of `columns`. */
function read(row, columns) {
  return Object.fromEntries(columns.map((name, index) => [name, row[index]]));
}

function percent(share) {
  return share === null || share === undefined ? "" : `${Math.round(100 * share)} %`;
}

/** Return how much of a resource is requested; "" for what the node has not, and nobody requests. */
function requestedText(name, requested, allocatable) {
  if (allocatable === null) return requested ? `${amount(name, requested)} requested; the node has none` : "";
  return `${amount(name, requested)} of ${amount(name, allocatable)} requested`;
}

function byZoneAndName(a, b) {
  return (a.zone < b.zone ? -1 : a.zone > b.zone ? 1 : 0) || a.node.localeCompare(b.node, "en", { numeric: true });
}

/** Return the least and the greatest value; null for none. */
function range(values) {
  if (!values.length) return [null, null];
  return values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [values[0], values[0]]);
}

export function nodesView(main, _parts, query, { say, title, watch, ask }) {
  const pod = query.get("pod") ?? "";
  const when = query.get("when") === LAST ? LAST : NOW;
  const firstBy = pod ? SCORE : "cpu";
  let by = query.get("by") ?? firstBy;
  let chosenNode = query.get("node") ?? "";
  let nodes = [];
  let resources = [];
  let verdicts = new Map();
  let scorePlugins = [];
  let isRead = false;
  let isOpen = true;
  // Which plugins score is not known before the first answer.
  let isAsking = Boolean(pod) && when === NOW;

  function choices(changes) {
    return { pod, when: pod && when === LAST ? LAST : "", by: by === firstBy ? "" : by, ...changes };
  }

  function address(changes) {
    const filled = Object.entries(choices(changes)).filter(([, value]) => value);
    return `#/nodes${filled.length ? `?${new URLSearchParams(filled)}` : ""}`;
  }

  const select = el("select", { id: "nodes-by" });
  select.addEventListener("change", () => {
    by = select.value;
    keepChoices("/nodes", choices({ node: chosenNode }));
    draw();
  });
  const asked = el("input", { id: "nodes-pod", value: pod, placeholder: "NAMESPACE/NAME", autocomplete: "off", spellcheck: "false" });
  const moment = el("select", { id: "nodes-when" },
    el("option", { value: NOW }, "as of now"), el("option", { value: LAST }, "of its last attempt"));
  moment.value = when;
  moment.addEventListener("change", () => { location.hash = address({ when: moment.value === LAST ? LAST : "", by: "" }); });
  const again = el("button", { type: "button" }, "Ask again");
  again.addEventListener("click", () => askNow());
  const form = el("form", { class: "controls" },
    el("label", { for: "nodes-by" }, "Colour by", select),
    el("label", { for: "nodes-pod" }, "Score of the pod", asked), el("button", {}, "Show"),
    pod ? [el("label", { for: "nodes-when" }, "Verdicts", moment), when === NOW ? again : null,
      el("a", { href: podLink(pod) }, `Pod ${pod}`)] : null);
  podField(asked, form, (key) => { location.hash = address({ pod: key, when: "", by: "" }); });
  const about = el("p", { class: "answer", "aria-live": "polite", hidden: !pod });
  const legend = el("p", { class: "legend" });
  const summary = el("p", { class: "soft" }, "reading the nodes");
  const detail = el("section", { "aria-label": "The chosen node", "aria-live": "polite" });
  const map = new HeatMap("Nodes", (index) => {
    chosenNode = nodes[index].node;
    showNode(nodes[index]);
  });
  const used = (name, shown = () => name) => ({
    title: name, width: "11%", number: true, text: (node) => percent(node.shares[shown()]),
  });
  // The table has what colours the map.
  const isOther = () => by && !by.startsWith(SCORE) && !COLUMNS.includes(by);
  const list = new List("Nodes as a table", [
    { title: "Node", width: "24%", text: (node) => node.node, link: (node) => address({ node: node.node }) },
    { title: "Zone", width: "11%", text: (node) => node.zone },
    used(COLUMNS[0], () => (isOther() ? by : COLUMNS[0])), ...COLUMNS.slice(1).map((name) => used(name)),
    { title: "Verdict", width: "22%", text: (node) => verdictText(node) },
    { title: "Score", width: "10%", number: true, text: (node) => String((by.startsWith(SCORE_BY) ? scoreOf(node) : node.score) ?? "") },
  ]);
  // A row chooses its node in place: the view would ask about the pod anew.
  list.element.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.replaceState(null, "", link.href);
    map.select(nodes.findIndex((node) => node.node === link.textContent));
  });
  main.append(title(pod ? `Nodes for pod ${pod}` : "Nodes"), form, about, summary, map.canvas, legend, detail,
    el("div", { class: "short" }, list.element));

  function verdictText(node) {
    const own = node.unschedulable ? "cordoned" : "";
    if (!pod) return own;
    if (node.verdict === "rejected") return [node.plugin, node.reason].filter(Boolean).join(": ");
    return { best: "fits best", notKept: "not kept", "": "not asked" }[node.verdict] ?? node.verdict;
  }

  function scoreOf(node) {
    if (by === SCORE) return node.score;
    return node.scores?.[scorePlugins.indexOf(by.slice(SCORE_BY.length))] ?? null;
  }

  function showNode(node) {
    const made = node ? [el("h2", {}, node.node), facts([
      ["Zone", node.zone],
      ["Cordoned", node.unschedulable ? "yes" : ""],
      ["Taints", node.taints ? String(node.taints) : ""],
      ...resources.map((name, index) => [name, requestedText(name, node.requested[index], node.allocatable[index])]),
      ["Verdict", pod ? verdictText(node) : ""],
      ["Score", node.score === null || node.score === undefined ? "" : String(node.score)],
      ["Made of", node.scores?.map((score, index) => `${scorePlugins[index]} ${score}`).join(", ")],
    ])] : [];
    // An unchanged section is not read out again.
    if (made.map((one) => one.outerHTML).join("") !== detail.innerHTML) detail.replaceChildren(...made);
  }

  /** Return the cell of a node. `marks`: of each plugin that rejected nodes; see `marked`. */
  function cell(node, least, most, marks) {
    const cordoned = node.unschedulable ? "×" : "";
    if (!by.startsWith(SCORE)) {
      const share = node.shares[by];
      const has = share !== null && share !== undefined;
      return { fill: has ? colour(share) : null, ink: ink(share), text: `${node.node}: ${percent(share) || "none"}`, mark: cordoned };
    }
    const text = `${node.node}: ${verdictText(node)}`;
    if (node.verdict === "rejected") return { ...marks.get(node.plugin), ink: "#fff", text };
    const score = scoreOf(node);
    if (score === null) return { fill: null, text, mark: cordoned };
    const share = most > least ? (score - least) / (most - least) : 1;
    return { fill: colour(share), ink: ink(share), text: `${text}, ${by} ${score}`, mark: cordoned };
  }

  /** Return by plugin that rejected nodes: its colour, its letter, and how many nodes, most nodes first. */
  function marked() {
    const counts = new Map();
    for (const node of nodes) if (node.verdict === "rejected") counts.set(node.plugin, (counts.get(node.plugin) ?? 0) + 1);
    return new Map([...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([plugin, number], index) =>
      [plugin, { fill: REJECTED[index % REJECTED.length], mark: String.fromCharCode(65 + (index % 26)), number }]));
  }

  function box(fill, mark = "") {
    const made = el("i", { class: "key", "aria-hidden": "true" }, mark);
    made.style.background = fill;
    return made;
  }

  function summaryOf(scored, least, most, marks) {
    if (!nodes.length) return "There are no nodes.";
    if (!by) return `${count(nodes.length, "node")} without any resource`;
    if (by.startsWith(SCORE)) {
      const rejected = [...marks.values()].reduce((sum, one) => sum + one.number, 0);
      return `${count(nodes.length, "node")}: ${rejected} rejected, ${scored.length} with a ${when === LAST ? "kept " : ""}score`
        + `${scored.length ? `, from ${least} to ${most}` : ""}`;
    }
    const shares = nodes.map((node) => node.shares[by]).filter((share) => share !== null && share !== undefined);
    const mean = shares.length ? shares.reduce((sum, share) => sum + share, 0) / shares.length : 0;
    return `${count(nodes.length, "node")}: ${percent(mean)} of ${by} requested on average, `
      + `${shares.filter((share) => share >= 0.9).length} at 90 % or more`;
  }

  function draw() {
    if (!isRead) return;
    offer();
    const marks = marked();
    const scored = nodes.map(scoreOf).filter((score) => score !== null && score !== undefined);
    const [least, most] = range(scored);
    const text = summaryOf(scored, least, most, marks);
    setText(summary, text);
    map.canvas.hidden = legend.hidden = !nodes.length;
    list.rename(FIRST_USED, isOther() ? by : COLUMNS[0]);
    list.rename(SCORED, by.startsWith(SCORE_BY) ? `Score by ${by.slice(SCORE_BY.length)}` : "Score");
    map.selected = chosenNode ? nodes.findIndex((node) => node.node === chosenNode) : -1;
    map.set(nodes.map((node) => cell(node, least, most, marks)), `Nodes. ${text}. The arrow keys choose a node; the table below has every node.`);
    legend.replaceChildren(...(by.startsWith(SCORE)
      ? [el("span", {}, box(colour(0)), "lowest score"), el("span", {}, box(colour(1)), "highest score"),
        ...[...marks].map(([plugin, one]) => el("span", {}, box(one.fill, one.mark), ` rejected by ${plugin || "no plugin"}: ${one.number}`)),
        el("span", {}, box("var(--line)"), when === LAST ? "no score kept" : "no score")]
      : [0, 0.25, 0.5, 0.75, 1].map((share) => el("span", {}, box(colour(share)), percent(share)))));
    list.set(nodes, "There are no nodes.");
    showNode(nodes[map.selected]);
    say(text);
  }

  /** Offer what the map can be coloured by. */
  function offer() {
    const options = [...resources, ...(pod ? [SCORE] : []), ...scorePlugins.map((name) => `${SCORE_BY}${name}`)];
    if (!options.includes(by) && !isAsking) [by = ""] = options;
    if ([...select.options].map((one) => one.value).join() !== options.join()) {
      select.replaceChildren(...options.map((name) =>
        el("option", { value: name }, name.startsWith(SCORE) ? name.replace(SCORE, "score of the pod") : `${name} requested`)));
    }
    if (select.value !== by) select.value = by;
  }

  async function askNow() {
    if (again.getAttribute("aria-disabled") === "true") return;
    again.setAttribute("aria-disabled", "true");
    isAsking = true;
    setText(about, "Asking the plugins about every node.");
    about.classList.remove("bad");
    try {
      const found = await ask(`pods/${pod.split("/").map(encodeURIComponent).join("/")}/fit`);
      if (!isOpen) return;
      scorePlugins = found.scorePlugins;
      isAsking = false;
      verdicts = new Map(found.nodes.map((row) => [row[0], read(row, found.columns)]));
      setText(about, answerText(found));
      nodes = nodes.map((node) => ({ ...node, ...NO_VERDICT, ...verdicts.get(node.node) }));
      draw();
    } catch (error) {
      if (!isOpen) return;
      isAsking = false;
      about.classList.add("bad");
      setText(about, `${error.message}. The scheduler may have the verdicts of the pod's last attempt.`);
      draw();
    } finally {
      again.removeAttribute("aria-disabled");
    }
  }

  function answerText(found) {
    const tied = found.tied > 1 ? `, or to one of ${count(found.tied - 1, "other node")} with the same score` : "";
    const outcome = found.node ? `The pod would go to ${found.node}${tied}.` : `No node fits: ${found.message.replace(/\.$/, "")}.`;
    const left = found.on ? ` They were asked as if the pod had left its node ${found.on}.` : "";
    return `${outcome} The plugins were asked at ${clock(found.answeredAt).slice(0, 8)} UTC; the pod's last attempt may have found something else.${left}`;
  }

  const stop = watch("nodes", pod && when === LAST ? { pod } : {}, ({ value, rows, changed }) => {
    if (!changed) return;
    isRead = true;
    resources = value.resources;
    nodes = [...rows.values()].map((row) => {
      const node = { ...(when === NOW && pod ? NO_VERDICT : {}), ...read(row, value.columns) };
      node.shares = Object.fromEntries(resources.map((name, index) => [
        name, node.allocatable[index] ? node.requested[index] / node.allocatable[index] : null]));
      return Object.assign(node, verdicts.get(node.node));
    }).sort(byZoneAndName);
    if (value.pod) {
      setText(about, value.pod.attempt ? `Attempt ${value.pod.attempt}: ${value.pod.feasible} of ${count(nodes.length, "node")} `
        + `passed every filter. These are the verdicts of that attempt; the scheduler keeps the scores of ${count(value.pod.scored, "node")}.`
        : "The pod was not tried yet.");
    }
    draw();
  });
  if (pod && when === NOW) askNow();
  return () => {
    isOpen = false;
    stop();
    map.close();
    list.close();
  };
}
