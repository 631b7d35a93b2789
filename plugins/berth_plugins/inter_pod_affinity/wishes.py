"""The wishes of the pod to be scheduled about other pods: its terms as tallies, and the labels of namespaces.

Used by `inter_pod_affinity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.pod import Pod
from berth_sdk.pod_affinity import PodAffinity, PodAffinityTerm
from berth_sdk.selected_pods import SelectedPods
from berth_sdk.slices import Work
from berth_sdk.tables import Tally

from berth_plugins.inter_pod_affinity.tallies import InAll, in_every_namespace, selected
from berth_plugins.objects.records import Follower

RESOURCE: Final = "namespaces"
_NO_LABELS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Wish:
    """One term: `pods` count by the values of a node's label `topology_key`, each with `weight`."""

    topology_key: str
    pods: SelectedPods
    weight: int = 0


@dataclass(frozen=True, eq=False)
class Wishes:
    """All terms of a pod. `anti` and `preferred` in the pod's order; preferred anti-affinity has negative
    weights.

    All pods with the same stanza share one object while its namespace selectors select the same namespaces.
    """

    required: tuple[Wish, ...]
    anti: tuple[Wish, ...]
    preferred: tuple[Wish, ...]
    has_preferred: bool
    errors: tuple[str, ...]

    @cached_property
    def together(self) -> Tally:
        """The tally of the pods that all terms of required affinity match."""
        parts = tuple(dict.fromkeys(wish.pods for wish in self.required))
        return parts[0] if len(parts) == 1 else InAll(parts)

    @cached_property
    def anti_by_key(self) -> Mapping[str, Sequence[SelectedPods]]:
        """The pods that required anti-affinity excludes, by topology key."""
        by_key: dict[str, list[SelectedPods]] = {}
        for wish in self.anti:
            by_key.setdefault(wish.topology_key, []).append(wish.pods)
        return by_key

    @cached_property
    def required_keys(self) -> tuple[str, ...]:
        """The topology keys of required affinity, each once."""
        return tuple(dict.fromkeys(wish.topology_key for wish in self.required))

    def welcome(self, pod: Pod) -> bool:
        """Return True if `pod` matches its own required affinity: the first pod of a group may run."""
        return all(wish.pods.selects(pod) for wish in self.required)


NO_WISHES: Final = Wishes((), (), (), has_preferred=False, errors=())


class Namespaces:
    """The labels of namespaces, and pods' terms with the namespaces that they select now.

    `exact`: a namespace selector selects the namespaces that it matches, and no others
    (`tallies.in_every_namespace`).
    """

    def __init__(self, handle: Handle, *, exact: bool) -> None:
        self._handle = handle
        self._exact = exact
        self._follower: Follower | None = None
        self._labels: dict[str, Mapping[str, str]] = {}
        self._version = 0
        """Grows when a namespace changes."""
        self._wishes: WeakKeyDictionary[PodAffinity, Wishes] = WeakKeyDictionary()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; empty for an unknown one."""
        self._catch_up()
        return self._labels.get(namespace, _NO_LABELS)

    def known_labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None for an unknown one."""
        self._catch_up()
        return self._labels.get(namespace)

    def wishes_of(self, pod: Pod) -> Work[Wishes]:
        """Return the pod's terms. Yields after each term that is read for the first time."""
        stanza = pod.pod_affinity
        if stanza is None:
            return NO_WISHES
        self._catch_up()
        known = self._wishes.get(stanza)
        while known is None:
            version = self._version
            made = Wishes(
                required=(yield from self._read((term, 0) for term in stanza.required)),
                anti=(yield from self._read((term, 0) for term in stanza.required_anti)),
                preferred=(
                    *(yield from self._read(stanza.preferred)),
                    *(yield from self._read((term, -weight) for term, weight in stanza.preferred_anti)),
                ),
                has_preferred=stanza.has_preferred,
                errors=stanza.errors,
            )
            if version == self._version:  # no namespace changed between two steps
                known = self._wishes[stanza] = made
        return known

    def selects(self, term: PodAffinityTerm, labels: Mapping[str, str] | None) -> bool:
        """Return True if a term selects a namespace by these labels. False for a term that matches all
        namespaces, whose wishes never change, and for `labels` None.
        """
        if labels is None or in_every_namespace(term, exact=self._exact):
            return False
        return term.namespace_selector.matches(labels)

    def means(self, term: PodAffinityTerm, pod: Pod) -> bool:
        """Return True if a term of the pod to be scheduled matches `pod`."""
        if in_every_namespace(term, exact=self._exact):
            return term.selector.matches(pod.labels)
        return term.matches(pod.namespace, pod.labels, self.labels_of(pod.namespace))

    def _read(self, terms: Iterable[tuple[PodAffinityTerm, int]]) -> Work[tuple[Wish, ...]]:
        wishes = []
        for term, weight in terms:
            pods = selected(term, self._labels, exact=self._exact)
            wishes.append(Wish(term.topology_key, pods, weight))
            yield
        return tuple(wishes)

    def _catch_up(self) -> None:
        if self._follower is None:
            self._follower = Follower(self._handle.objects(RESOURCE))
        moved = self._follower.moved()
        if moved is None:
            self._version += 1
            self._labels = {item.ref.name: labels_of(item) for item in self._follower.reader.list()}
            self._wishes.clear()
            return
        for _, name in moved:
            item = self._follower.reader.get(name)
            before, now = self._labels.pop(name, None), None if item is None else labels_of(item)
            if now is not None:
                self._labels[name] = now
            if before != now:
                self._version += 1
                self._forget(before, now)

    def _forget(self, before: Mapping[str, str] | None, now: Mapping[str, str] | None) -> None:
        """Drop the wishes whose terms select the namespace now, or did. None: the namespace does not
        exist.
        """
        for stanza in [*self._wishes]:
            if any(self.selects(term, before) is not self.selects(term, now) for term in stanza.terms):
                del self._wishes[stanza]


def labels_of(item: KubeObject) -> Mapping[str, str]:
    """Return the labels of an object."""
    labels: Mapping[str, str] = item.get("metadata.labels", _NO_LABELS)
    return labels
