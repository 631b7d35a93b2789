"""Writes `matchLabelKeys` and `mismatchLabelKeys` of affinity terms and spread constraints into selectors.

Called by `Admission.admit` for new pods. A scheduler ignores the keys of affinity terms, because the API
server has written them into the selectors. It reads those of spread constraints, with the same result.
Source: `pkg/registry/core/pod/strategy.go` (applyMatchLabelKeysAndMismatchLabelKeys), v1.36.
Differs: keys that the selector of a pod from a cluster dump contains are neither added nor refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from berth_host.errors.cluster import FieldProblem

from berth_sim.cluster.validation.fields import Problems
from berth_sim.cluster.validation.selectors import check_selected_keys

_KINDS: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SPREAD: Final = "topologySpreadConstraints"
Json = dict[str, Any]


def with_label_keys(spec: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[Json, list[FieldProblem]]:
    """Return the spec of a pod with `labels`, and the problems: keys that the selectors name as well.

    The arguments are not changed in place.
    """
    writer = _Writer(labels)
    changes: Json = {}
    affinity = spec.get("affinity") or {}
    stanzas = {kind: writer.stanza(affinity[kind], kind) for kind in _KINDS if affinity.get(kind)}
    if stanzas:
        changes["affinity"] = {**affinity, **stanzas}
    constraints = spec.get(_SPREAD) or ()
    if any(constraint.get("matchLabelKeys") for constraint in constraints):
        changes[_SPREAD] = [
            writer.written(constraint, f"spec.{_SPREAD}[{i}]") for i, constraint in enumerate(constraints)
        ]
    return {**spec, **changes}, writer.problems.found


class _Writer:
    """A writer of the keys of one pod's terms and constraints."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self.problems = Problems()

    def stanza(self, stanza: Json, kind: str) -> Json:
        """Return all terms of pod affinity or pod anti-affinity with their keys written."""
        path = f"spec.affinity.{kind}"
        terms: Json = {}
        if stanza.get(_REQUIRED):
            terms[_REQUIRED] = [
                self.written(term, f"{path}.{_REQUIRED}[{i}]") for i, term in enumerate(stanza[_REQUIRED])
            ]
        if stanza.get(_PREFERRED):
            terms[_PREFERRED] = [
                self._weighted(one, f"{path}.{_PREFERRED}[{i}]") for i, one in enumerate(stanza[_PREFERRED])
            ]
        return {**stanza, **terms}

    def _weighted(self, one: Json, path: str) -> Json:
        term = self.written(one.get("podAffinityTerm") or {}, f"{path}.podAffinityTerm")
        return {**one, "podAffinityTerm": term}

    def written(self, term: Json, path: str) -> Json:
        """Return one term or constraint with its keys in its selector."""
        selector = term.get("labelSelector")
        if selector is None:
            # A missing selector matches no pod, with or without keys.
            return term
        known: Sequence[Json] = selector.get("matchExpressions") or ()
        added = [one for one in self._requirements(term) if one not in known]
        if not added:
            return term
        written = {**term, "labelSelector": {**selector, "matchExpressions": [*known, *added]}}
        check_selected_keys(self.problems, written, path)
        return written

    def _requirements(self, term: Json) -> Iterator[Json]:
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            for key in term.get(field) or ():
                if key in self._labels:
                    yield {"key": key, "operator": operator, "values": [self._labels[key]]}
