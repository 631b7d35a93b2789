"""The rules of InterPodAffinity, read plainly: every pod against every term, from the JSON, no table.

Slow on purpose, and written apart from the plugin: `tests/plugins/inter_pod_affinity/test_rules.py` holds the
two together. Verdicts are (code word, reasons) or None, as in `support.plain_rules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.plain_rules import UNRESOLVABLE, UNSCHEDULABLE, Verdict

Json = Mapping[str, Any]
Pair = tuple[str, str]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
AFFINITY_RULES = UNRESOLVABLE, ("node(s) didn't match pod affinity rules",)
ANTI_AFFINITY_RULES = UNSCHEDULABLE, ("node(s) didn't match pod anti-affinity rules",)
EXISTING_RULES = UNSCHEDULABLE, ("node(s) didn't satisfy existing pods anti-affinity rules",)


def labels_of(item: Json) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def namespace_of(pod: Json) -> str:
    return pod["metadata"].get("namespace") or "default"


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions") or ():
        key, values = one["key"], one.get("values") or ()
        holds = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds[one["operator"]]:
            return False
    return True


def stanza(pod: Json, name: str, when: str) -> Sequence[Json]:
    affinity = pod["spec"].get("affinity") or {}
    found: Sequence[Json] = (affinity.get(name) or {}).get(when) or ()
    return found


@dataclass(frozen=True)
class Rules:
    """The rules over one cluster. `namespaces`: labels by name, of those that exist."""

    nodes: Sequence[Json]
    pods: Sequence[Json]
    namespaces: Mapping[str, Mapping[str, str]]
    pod: Json
    hard_weight: int = 1
    ignore_preferred: bool = False
    exact: bool = True
    """As kube-scheduler 1.37. False, as 1.36: a namespace selector of the pod's own terms that matches a
    namespace without labels selects every namespace.
    """

    # --- matching ------------------------------------------------------------------------------

    def listed(self, term: Json, owner: Json) -> set[str]:
        names = set(term.get("namespaces") or ())
        return names if names or term.get("namespaceSelector") is not None else {namespace_of(owner)}

    def wants(self, term: Json, other: Json) -> bool:
        """Return a term of the pod to be scheduled: the selector's namespaces are added to the list. An empty
        selector stays, and selects namespaces that do not exist; in 1.36 every selector stays.
        """
        selector = term.get("namespaceSelector")
        names = self.listed(term, self.pod)
        names |= {name for name, labels in self.namespaces.items() if selects(selector, labels)}
        stays = not self.exact or not any((selector or {}).values())
        if namespace_of(other) not in names and not (stays and selects(selector, {})):
            return False
        return selects(term.get("labelSelector"), labels_of(other))

    def is_meant(self, term: Json, owner: Json) -> bool:
        """Return a term of a pod that runs."""
        mine = namespace_of(self.pod)
        in_namespace = mine in self.listed(term, owner) or selects(
            term.get("namespaceSelector"), self.namespaces.get(mine, {})
        )
        return in_namespace and selects(term.get("labelSelector"), labels_of(self.pod))

    def running(self) -> Iterator[tuple[Json, Mapping[str, str]]]:
        """Every pod on a node, with the node's labels."""
        by_name = {node["metadata"]["name"]: labels_of(node) for node in self.nodes}
        for pod in self.pods:
            if pod["spec"].get("nodeName") in by_name:
                yield pod, by_name[pod["spec"]["nodeName"]]

    # --- Filter --------------------------------------------------------------------------------

    def affinity(self) -> Counter[Pair]:
        terms = stanza(self.pod, "podAffinity", REQUIRED)
        counts: Counter[Pair] = Counter()
        for other, labels in self.running():
            if terms and all(self.wants(term, other) for term in terms):
                counts.update((k, labels[k]) for term in terms if (k := term["topologyKey"]) in labels)
        return counts

    def anti(self) -> Counter[Pair]:
        counts: Counter[Pair] = Counter()
        for other, labels in self.running():
            for term in stanza(self.pod, "podAntiAffinity", REQUIRED):
                if term["topologyKey"] in labels and self.wants(term, other):
                    counts[term["topologyKey"], labels[term["topologyKey"]]] += 1
        return counts

    def existing(self) -> Counter[Pair]:
        counts: Counter[Pair] = Counter()
        for other, labels in self.running():
            for term in stanza(other, "podAntiAffinity", REQUIRED):
                if term["topologyKey"] in labels and self.is_meant(term, other):
                    counts[term["topologyKey"], labels[term["topologyKey"]]] += 1
        return counts

    @property
    def skips_filter(self) -> bool:
        own = [stanza(self.pod, name, REQUIRED) for name in ("podAffinity", "podAntiAffinity")]
        return not any(own) and not self.existing()

    def verdict(self, node: Json) -> Verdict:
        labels, counts = labels_of(node), self.affinity()
        terms = stanza(self.pod, "podAffinity", REQUIRED)
        if any(term["topologyKey"] not in labels for term in terms):
            return AFFINITY_RULES
        company = all(counts[term["topologyKey"], labels[term["topologyKey"]]] > 0 for term in terms)
        if not company and (counts or not all(self.wants(term, self.pod) for term in terms)):
            return AFFINITY_RULES
        for term in stanza(self.pod, "podAntiAffinity", REQUIRED):
            key = term["topologyKey"]
            if key in labels and self.anti()[key, labels[key]] > 0:
                return ANTI_AFFINITY_RULES
        if any(self.existing()[pair] > 0 for pair in labels.items()):
            return EXISTING_RULES
        return None

    # --- Score ---------------------------------------------------------------------------------

    def worth(self) -> dict[Pair, int]:
        """Worth of each pair of a node's labels; a pair of worth 0 was talked about all the same."""
        worth: dict[Pair, int] = {}

        def count(term: Json, labels: Mapping[str, str], weight: int) -> None:
            key = term["topologyKey"]
            if key in labels:
                worth[key, labels[key]] = worth.get((key, labels[key]), 0) + weight

        for other, labels in self.running():
            for name, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                for one in stanza(self.pod, name, PREFERRED):
                    if self.wants(one["podAffinityTerm"], other):
                        count(one["podAffinityTerm"], labels, sign * one["weight"])
                for one in stanza(other, name, PREFERRED):
                    if self.is_meant(one["podAffinityTerm"], other):
                        count(one["podAffinityTerm"], labels, sign * one["weight"])
            for term in stanza(other, "podAffinity", REQUIRED) if self.hard_weight else ():
                if self.is_meant(term, other):
                    count(term, labels, self.hard_weight)
        return worth

    def scores(self) -> list[int] | None:
        """One per node; None: nothing to say."""
        prefers = any(stanza(self.pod, name, PREFERRED) for name in ("podAffinity", "podAntiAffinity"))
        if self.ignore_preferred and not prefers:
            return None
        worth = self.worth()
        if not worth:
            return None
        return [sum(worth.get(pair, 0) for pair in labels_of(node).items()) for node in self.nodes]
