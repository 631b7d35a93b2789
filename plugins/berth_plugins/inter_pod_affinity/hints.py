"""The hints of InterPodAffinity: the changes of pods, nodes and namespaces that may help a rejected pod.

`Hints` returns True for every change that can turn Filter from no to yes. `pod_helped` and `node_helped` miss
some changes, as kube-scheduler does, and are for a host that emulates a version.

Source: `pkg/scheduler/framework/plugins/interpodaffinity/plugin.go` (isSchedulableAfterPodChange,
isSchedulableAfterNodeChange), v1.36 to v1.38; kubernetes 139161, 141953.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from berth_sdk.errors import SelectorError
from berth_sdk.events import ClusterEvent, EventObject
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm

from berth_plugins.inter_pod_affinity.index import CarriedTerms
from berth_plugins.inter_pod_affinity.wishes import Namespaces, labels_of
from berth_plugins.objects.of_events import as_node, as_object, as_pod, holds_place

_NONE: Final = PodAffinity()
_NO_LABELS: Final[Mapping[str, str]] = {}
Matches = Callable[[Sequence[PodAffinityTerm], Pod, Mapping[str, str]], bool]
"""Returns True if terms match a pod, whose namespace has the labels."""


class Hints:
    """The hints of one plugin instance. `carried`: the terms of running pods at the latest cycle."""

    def __init__(self, namespaces: Namespaces, carried: CarriedTerms) -> None:
        self._namespaces = namespaces
        self._carried = carried

    def may_help(self, event: ClusterEvent, pod: Pod) -> bool:
        """Return True when Filter may now pass some node. Raises SelectorError where required terms of `pod`
        cannot be read.
        """
        if event.resource == "Pod":
            return self._after_pod(event, pod)
        if event.resource == "Node":
            return self._after_node(event, pod)
        return self._after_namespace(event, pod)

    def _after_pod(self, event: ClusterEvent, pod: Pod) -> bool:
        known = _about_pod(event, pod)
        if isinstance(known, bool):
            return known
        other, wanted = known
        if event.old is None:
            return self._in_all(wanted.required, other)
        if event.new is None:
            return (
                any(self._namespaces.means(term, other) for term in wanted.required_anti)
                or self._keeps_away(other, pod)
                or (self._in_all(wanted.required, other) and self._in_all(wanted.required, pod))
            )
        before = as_pod(event.old)
        means = self._namespaces.means
        if any(means(term, before) and not means(term, other) for term in wanted.required_anti):
            return True
        was, is_now = self._in_all(wanted.required, before), self._in_all(wanted.required, other)
        # The first pod of a group may run where no pod matches, so the end of a match helps it as well.
        return was != is_now and (is_now or self._in_all(wanted.required, pod))

    def _after_node(self, event: ClusterEvent, pod: Pod) -> bool:
        wanted = _readable(pod)
        after = _NO_LABELS if event.new is None else as_node(event.new).labels
        required = {term.topology_key for term in wanted.required}
        if event.old is None:
            return not required or any(key in after for key in required)
        before = as_node(event.old).labels
        if any(_appeared(key, before, after) for key in required):
            return True
        # Pods that exclude this one, or that count for its group elsewhere, are in another domain now.
        leaving = {term.topology_key for term in wanted.required_anti}
        leaving.update(self._carried.anti.meaning(pod, self._labels_of(pod)).tallies)
        if required and self._in_all(wanted.required, pod):
            leaving |= required
        return any(_appeared(key, after, before) for key in leaving)

    def _after_namespace(self, event: ClusterEvent, pod: Pod) -> bool:
        before, after = _namespace_labels(event.old), _namespace_labels(event.new)
        wanted = _readable(pod)
        if any(
            self._namespaces.selects(term, before) is not self._namespaces.selects(term, after)
            for term in (*wanted.required, *wanted.required_anti)
        ):
            return True
        subject = as_object(event.old if event.new is None else event.new)
        if subject.ref.name != pod.namespace:
            return False
        meant = frozenset(self._carried.anti.meaning(pod, before or _NO_LABELS).ids)
        return not meant <= frozenset(self._carried.anti.meaning(pod, after or _NO_LABELS).ids)

    def _keeps_away(self, other: Pod, pod: Pod) -> bool:
        stanza = other.pod_affinity
        return stanza is not None and any(
            term.matches(pod.namespace, pod.labels, self._labels_of(pod)) for term in stanza.required_anti
        )

    def _in_all(self, terms: Sequence[PodAffinityTerm], pod: Pod) -> bool:
        return bool(terms) and all(self._namespaces.means(term, pod) for term in terms)

    def _labels_of(self, pod: Pod) -> Mapping[str, str]:
        return self._namespaces.labels_of(pod.namespace)


class _UnknownNamespaceError(Exception):
    """The labels of a namespace decide, and the namespace is not known."""


def pod_helped(
    event: ClusterEvent, pod: Pod, *, by_any_term: bool, namespaces: Namespaces | None = None
) -> bool:
    """Return kube-scheduler's answer for a pod that was added, deleted or changed its labels.

    `by_any_term` True: anti-affinity counts where one of its terms matches, as in 1.37; False: only where all
    of them do, as in 1.36. `namespaces` None: namespaces have no labels, as before 1.38; else a namespace
    that is not known helps. Raises SelectorError where required terms cannot be read.
    """
    known = _about_pod(event, pod)
    if isinstance(known, bool):
        return known
    try:
        return _pod_helped(event, pod, known, _in_any if by_any_term else _in_all, namespaces)
    except _UnknownNamespaceError:
        return True


def _pod_helped(
    event: ClusterEvent,
    pod: Pod,
    known: tuple[Pod, PodAffinity],
    matches: Matches,
    namespaces: Namespaces | None,
) -> bool:
    """Return the answer about another pod. Raises _UnknownNamespaceError."""
    other, wanted = known
    if event.new is None:
        labels = _needed_labels(wanted.required_anti, (other,), namespaces)
        if matches(wanted.required_anti, other, labels):
            return True
        carried = _readable(other).required_anti
        return matches(carried, pod, _needed_labels(carried, (pod,), namespaces))
    if event.old is None:
        return _in_all(wanted.required, other, _needed_labels(wanted.required, (other,), namespaces))
    before = as_pod(event.old)
    terms = (*wanted.required, *wanted.required_anti)
    labels = _needed_labels(terms, (before, other), namespaces)
    if not _in_all(wanted.required, before, labels) and _in_all(wanted.required, other, labels):
        return True
    anti = wanted.required_anti
    return matches(anti, before, labels) and not matches(anti, other, labels)


def _needed_labels(
    terms: Sequence[PodAffinityTerm], pods: Sequence[Pod], namespaces: Namespaces | None
) -> Mapping[str, str]:
    """Return the labels of the pods' namespace if the terms need them. Raises _UnknownNamespaceError."""
    if namespaces is None or not any(_needs_labels(term, pod) for term in terms for pod in pods):
        return _NO_LABELS
    labels = namespaces.known_labels_of(pods[0].namespace)
    if labels is None:
        raise _UnknownNamespaceError
    return labels


def _needs_labels(term: PodAffinityTerm, pod: Pod) -> bool:
    selector = term.namespace_selector
    if not selector.requirements or pod.namespace in term.namespaces:
        return False
    return term.selector.matches(pod.labels)


def node_helped(event: ClusterEvent, pod: Pod) -> bool:
    """Return kube-scheduler's answer for a node that was added, or whose labels changed. Raises SelectorError
    where required terms cannot be read.
    """
    wanted = _readable(pod)
    after = as_node(event.new).labels
    if event.old is None:
        return bool(wanted.required_anti) or any(term.topology_key in after for term in wanted.required)
    before = as_node(event.old).labels
    return any(_appeared(term.topology_key, before, after) for term in wanted.required) or any(
        _appeared(term.topology_key, after, before) for term in wanted.required_anti
    )


def _about_pod(event: ClusterEvent, pod: Pod) -> bool | tuple[Pod, PodAffinity]:
    """Return the answer where the terms do not matter, else the event's pod and the terms of `pod`. Raises
    SelectorError where required terms cannot be read.
    """
    if event.new is not None and as_pod(event.new).uid == pod.uid:
        return True
    other = as_pod(event.old if event.new is None else event.new)
    return (other, _readable(pod)) if holds_place(other) else False


def _appeared(key: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return True if the key has a value in `after` that differs from the one in `before`."""
    return key in after and before.get(key) != after[key]


def _namespace_labels(value: EventObject | None) -> Mapping[str, str] | None:
    return None if value is None else labels_of(as_object(value))


def _readable(pod: Pod) -> PodAffinity:
    stanza = pod.pod_affinity
    if stanza is None:
        return _NONE
    if stanza.broken_required:
        raise SelectorError(", ".join(stanza.errors))
    return stanza


def _in_any(terms: Sequence[PodAffinityTerm], pod: Pod, labels: Mapping[str, str]) -> bool:
    return any(term.matches(pod.namespace, pod.labels, labels) for term in terms)


def _in_all(terms: Sequence[PodAffinityTerm], pod: Pod, labels: Mapping[str, str]) -> bool:
    return bool(terms) and all(term.matches(pod.namespace, pod.labels, labels) for term in terms)
