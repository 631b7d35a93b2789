// The pod groups: a list, and one group with what its next member lacks.

import { clock, count, el, facts, podLink, redraw, span, table } from "./dom.js";
import { List } from "./list.js";
import { stateText } from "./pod.js";

const NEAREST_SHOWN = 5;
const WORDS = {
  PodGroup: "podgroup",
  CompositePodGroup: "compositepodgroup",
  "PodGroup.scheduling.x-k8s.io": "podgroup.scheduling.x-k8s.io",
};

/** Return what a pod lacks on the nodes that are nearest to a fit. */
function nearestText(nearest) {
  const others = nearest.slice(NEAREST_SHOWN).reduce((sum, one) => sum + one.nodes.length, 0);
  return nearest.slice(0, NEAREST_SHOWN).map((one) => one.text).join("; ")
    + (others ? `; ${count(others, "other node")} ${others === 1 ? "lacks" : "lack"} more` : "");
}

export function groupsView(main, _parts, _query, { say, title, watch }) {
  let at = null;
  const list = new List("Pod groups", [
    { title: "Group", width: "24%", text: (one) => one.podGroup, link: (one) => `#/groups/${one.podGroup.split("/").map(encodeURIComponent).join("/")}?kind=${WORDS[one.kind] ?? ""}` },
    { title: "Kind", width: "16%", text: (one) => one.kind },
    { title: "State", width: "12%", text: (one) => one.state },
    { title: "Placed", width: "12%", number: true, text: (one) => `${one.members.placed} of ${one.members.minimum} needed` },
    { title: "Pods", width: "6%", number: true, text: (one) => String(one.pods) },
    { title: "Waits for", width: "8%", number: true, text: (one) => (one.since ? span(one.since, at) : "") },
    { title: "Message", width: "22%", text: (one) => one.message },
  ]);
  const summary = el("p", { class: "soft" }, "reading the groups");
  main.append(title("Groups"), summary, list.element);
  const stop = watch("podgroups", {}, (now) => {
    at = now.at;
    if (now.changed) {
      const groups = [...now.rows.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
      const waiting = groups.filter((one) => one.state !== "scheduled").length;
      summary.textContent = groups.length ? `${count(groups.length, "group")}, ${waiting} not scheduled`
        : "There are no pod groups.";
      list.set(groups);
      say(summary.textContent);
    } else {
      list.draw();
    }
  });
  return () => {
    stop();
    list.close();
  };
}

export function groupView(main, [namespace, name], query, { say, title, watch }) {
  const body = el("div", {}, el("p", { class: "soft" }, "reading the group"));
  const kind = query.get("kind");
  main.append(title(`Group ${namespace}/${name}`), el("p", {}, el("a", { href: "#/groups" }, "All groups")), body);
  const path = [namespace, name].map(encodeURIComponent).join("/");
  return watch(`podgroups/${path}`, kind ? { kind } : {}, ({ value, at, changed }) => {
    if (!changed) return;
    const last = value.lastAttempt;
    const next = last?.next;
    const members = value.members;
    redraw(body, [
      facts([
        ["State", stateText(value.state)],
        ["Kind", value.kind],
        ["Message", value.message],
        ["Pods", String(value.pods)],
        ["Members", members && `${members.placed} placed of ${members.count}, ${members.minimum} needed`],
        ["Topology", value.topologyKey],
        ["In the queue since", value.queue && clock(value.queue.since, at)],
        ["Rejected by", value.queue?.rejectedBy.join(", ")],
        ["Held room", value.hold && `${count(value.hold.pods, "place")} until ${clock(value.hold.until, at)}`],
        ["Problems", value.problems.join("; ")],
        ["Last attempt", last && `${last.attempt}: ${last.outcome}. ${last.message}`],
        ["Next member", next && el("a", { href: podLink(next.pod) }, next.pod)],
        ["It lacks", next && nearestText(next.nearestFit)],
      ]),
      value.groups.length ? table("Child groups", [{ title: "Group" }, { title: "Kind" }, { title: "Placed", number: true },
        { title: "Needed", number: true }], value.groups.map((one) => [one.podGroup, one.kind, String(one.members.placed),
        String(one.members.minimum)])) : null,
      last?.placements.length ? table("Placements that were tried", [{ title: "Domain" }, { title: "Nodes", number: true },
        { title: "Pods placed", number: true }, { title: "Why not" }], last.placements.map((one) => [one.name,
        String(one.nodes), String(one.placed), one.message])) : null,
    ]);
    say(`${value.podGroup} is ${value.state}`);
  });
}
