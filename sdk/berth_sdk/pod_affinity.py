"""Pod affinity and anti-affinity: a pod's terms, read once per distinct stanza and shared by all pods with
it.

Read through `Pod.pod_affinity`. Pods of one namespace with equal stanzas share one `PodAffinity` object, and
equal terms of any pods are one `PodAffinityTerm` object. Both compare and hash by identity, which is fast for
selectors of any length.

An unreadable term leaves its list empty and a text in `errors`, as in kube-scheduler. A pending pod is
rejected with the text. A running pod counts without these terms.

Source: kube-scheduler `framework/types.go` (PodInfo.Update, GetAffinityTerms, newAffinityTerm) and the
framework API's AffinityTerm, v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from berth_sdk.errors import SelectorError
from berth_sdk.selectors import LABEL_OPERATORS, LabelSelector, mappings
from berth_sdk.slices import Work, at_once

T = TypeVar("T")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MANY: Final = 256
"""The number of terms and requirements beyond which a pod's terms are long."""
_MAX_WEIGHT: Final = 2**31 - 1
_NOTHING: Final = LabelSelector(None)
_OPERATORS: Final = frozenset(operator.value for operator in LABEL_OPERATORS)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodAffinityTerm:
    """One term: the pods of these namespaces that `selector` matches, grouped by their nodes' label
    `topology_key`.

    `namespaces`: the listed ones, or the pod's own where the term neither lists nor selects namespaces.
    """

    namespaces: frozenset[str]
    namespace_selector: LabelSelector
    selector: LabelSelector
    topology_key: str

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return True if the term selects a pod with `labels` in `namespace`, whose labels are
        `namespace_labels`.
        """
        if namespace not in self.namespaces and not self.namespace_selector.matches(namespace_labels):
            return False
        return self.selector.matches(labels)


Weighted = tuple[PodAffinityTerm, int]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodAffinity:
    """The terms of one pod's `podAffinity` and `podAntiAffinity`, in the order of the stanzas.

    `has_preferred`: the stanza lists preferred terms, readable or not. `errors`: one text per list that
    cannot be read. `broken_required`: one of these lists is a required one.
    """

    required: tuple[PodAffinityTerm, ...] = ()
    required_anti: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[Weighted, ...] = ()
    preferred_anti: tuple[Weighted, ...] = ()
    has_preferred: bool = False
    errors: tuple[str, ...] = ()
    broken_required: bool = False
    terms: frozenset[PodAffinityTerm] = field(init=False, repr=False)
    """All terms of the four lists."""

    def __post_init__(self) -> None:
        weighted = (term for term, _ in (*self.preferred, *self.preferred_anti))
        object.__setattr__(self, "terms", frozenset((*self.required, *self.required_anti, *weighted)))

    @staticmethod
    def of_spec(spec: Mapping[str, Any], namespace: str) -> PodAffinity | None:
        """Read a pod's spec. None: the spec has neither stanza.

        >>> term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
        >>> spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
        >>> PodAffinity.of_spec(spec, "shop").required[0].matches("shop", {"app": "db"}, {})
        True
        """
        return at_once(PodAffinity.read(spec, namespace)) if spec.get("affinity") else None

    @staticmethod
    def read(spec: Mapping[str, Any], namespace: str) -> Work[PodAffinity | None]:
        """Return `of_spec`, which returns the same object while the result is in use. Yields after each
        term and each requirement.
        """
        stanza = spec.get("affinity")
        if not stanza:
            return None
        if not isinstance(stanza, Mapping):
            text = f"affinity: must be a map, not {type(stanza).__name__}"
            return PodAffinity(errors=(text,), broken_required=True)
        affinity, anti = stanza.get("podAffinity"), stanza.get("podAntiAffinity")
        if affinity is None and anti is None:
            return None
        key = (namespace, repr(affinity), repr(anti))
        known = _STANZAS.get(key)
        if known is None:
            yield
            known = _STANZAS[key] = yield from _read(affinity, anti, namespace)
        return known

    @staticmethod
    def is_long(spec: Mapping[str, Any]) -> bool:
        """Return True if the terms of a spec, which may be malformed, have more than MANY parts."""
        if not spec.get("affinity"):
            return False
        count = 0
        affinity = _part(spec, "affinity")
        for stanza in (_part(affinity, "podAffinity"), _part(affinity, "podAntiAffinity")):
            for listed in (_listed(stanza, _REQUIRED), _listed(stanza, _PREFERRED)):
                for item in listed:
                    term = _part(item, "podAffinityTerm") or item
                    count += 1
                    for name in ("labelSelector", "namespaceSelector"):
                        selector = _part(term, name)
                        count += len(_listed(selector, "matchExpressions"))
                        count += len(_part(selector, "matchLabels"))
                    if count > MANY:
                        return True
        return False


_STANZAS: Final[WeakValueDictionary[tuple[str, str, str], PodAffinity]] = WeakValueDictionary()
_TERMS: Final[WeakValueDictionary[tuple[Any, ...], PodAffinityTerm]] = WeakValueDictionary()


def _part(raw: Any, key: str) -> Mapping[str, Any]:
    found = raw.get(key) if isinstance(raw, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _listed(raw: Any, key: str) -> Sequence[Any]:
    found = raw.get(key) if isinstance(raw, Mapping) else None
    return found if isinstance(found, list) else ()


def _read(affinity: Any, anti: Any, namespace: str) -> Work[PodAffinity]:
    errors: list[str] = []
    broken: set[str] = set()

    def terms(
        stanza: Any, key: str, name: str, read: Callable[[Mapping[str, Any], str], Work[T]]
    ) -> Work[tuple[T, ...]]:
        found = []
        try:
            for item in _items(stanza, key):
                found.append((yield from read(item, namespace)))
                yield
            return tuple(found)
        except SelectorError as err:
            errors.append(f"{name}: {err}")
            broken.add(key)
            return ()

    return PodAffinity(
        required=(yield from terms(affinity, _REQUIRED, "requiredAffinityTerms", _term)),
        required_anti=(yield from terms(anti, _REQUIRED, "requiredAntiAffinityTerms", _term)),
        preferred=(yield from terms(affinity, _PREFERRED, "preferredAffinityTerms", _weighted)),
        preferred_anti=(yield from terms(anti, _PREFERRED, "preferredAntiAffinityTerms", _weighted)),
        has_preferred=any(isinstance(one, Mapping) and bool(one.get(_PREFERRED)) for one in (affinity, anti)),
        errors=tuple(errors),
        broken_required=_REQUIRED in broken,
    )


def _items(stanza: Any, key: str) -> Sequence[Mapping[str, Any]]:
    if stanza is None:
        return ()
    if not isinstance(stanza, Mapping):
        raise SelectorError(f"must be a map, not {type(stanza).__name__}")
    return mappings(stanza.get(key), key)


def _weighted(raw: Mapping[str, Any], namespace: str) -> Work[Weighted]:
    weight = raw.get("weight") or 0
    if isinstance(weight, bool) or not isinstance(weight, int) or abs(weight) > _MAX_WEIGHT:
        raise SelectorError(f"weight: must be a 32-bit integer, not {weight!r}")
    term = raw.get("podAffinityTerm") or {}
    if type(term) is not dict and not isinstance(term, Mapping):
        raise SelectorError(f"podAffinityTerm: must be a map, not {type(term).__name__}")
    return (yield from _term(term, namespace)), weight


def _term(raw: Mapping[str, Any], namespace: str) -> Work[PodAffinityTerm]:
    listed = raw.get("namespaces") or ()
    # The quick tests here and below are nearly always enough, for pods with tens of thousands of terms.
    if type(listed) is not tuple and (not isinstance(listed, Sequence) or isinstance(listed, str)):
        raise SelectorError(f"namespaces: must be a list, not {type(listed).__name__}")
    selector = yield from _selector(raw, "labelSelector")
    of_namespaces = yield from _selector(raw, "namespaceSelector")
    own = not listed and raw.get("namespaceSelector") is None
    namespaces = frozenset((namespace,) if own else map(str, listed))
    key = (namespaces, of_namespaces, selector, str(raw.get("topologyKey") or ""))
    known = _TERMS.get(key)
    if known is None:
        known = _TERMS[key] = PodAffinityTerm(*key)
    return known


def _selector(raw: Mapping[str, Any], name: str) -> Work[LabelSelector]:
    selector = raw.get(name)
    if selector is None:
        return _NOTHING
    if type(selector) is not dict and not isinstance(selector, Mapping):
        raise SelectorError(f"{name}: must be a map, not {type(selector).__name__}")
    expressions = selector.get("matchExpressions")
    for item in () if expressions is None else mappings(expressions, f"{name}.matchExpressions"):
        operator = item.get("operator") or ""
        if operator not in _OPERATORS:
            # kube-scheduler's words, which appear in the pod's condition.
            raise SelectorError(f'"{operator}" is not a valid label selector operator')
    return (yield from LabelSelector.read(selector, name))
