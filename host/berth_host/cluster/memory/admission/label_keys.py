"""`matchLabelKeys` and `mismatchLabelKeys` of pod affinity terms -> requirements of their selectors.

Called by `Admission.admit` for new pods. Source: `pkg/registry/core/pod/strategy.go`
(applyMatchLabelKeysAndMismatchLabelKeys), v1.36: the API server writes them down, so no scheduler looks at
the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_KINDS: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
Json = dict[str, Any]


def with_label_keys(spec: Mapping[str, Any], labels: Mapping[str, str]) -> Json:
    """The spec of a pod with `labels`; nothing of what is given is changed in place."""
    affinity = spec.get("affinity") or {}
    changes: Json = {}
    for kind in _KINDS:
        stanza = affinity.get(kind) or {}
        terms: Json = {}
        if stanza.get(_REQUIRED):
            terms[_REQUIRED] = [_term(term, labels) for term in stanza[_REQUIRED]]
        if stanza.get(_PREFERRED):
            terms[_PREFERRED] = [
                {**one, "podAffinityTerm": _term(one.get("podAffinityTerm") or {}, labels)}
                for one in stanza[_PREFERRED]
            ]
        if terms:
            changes[kind] = {**stanza, **terms}
    return {**spec, "affinity": {**affinity, **changes}} if changes else dict(spec)


def _term(term: Json, labels: Mapping[str, str]) -> Json:
    selector = term.get("labelSelector")
    if selector is None:
        # It matches nothing, whatever is added.
        return term
    known: Sequence[Json] = selector.get("matchExpressions") or ()
    # A pod that was read from a cluster has them already.
    added = [one for one in _requirements(term, labels) if one not in known]
    if not added:
        return term
    return {**term, "labelSelector": {**selector, "matchExpressions": [*known, *added]}}


def _requirements(term: Json, labels: Mapping[str, str]) -> Iterator[Json]:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                yield {"key": key, "operator": operator, "values": [labels[key]]}
