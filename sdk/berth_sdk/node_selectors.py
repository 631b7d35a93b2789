"""Node selector terms: where a pod or a volume may be, by node labels and by node name.

Used by NodeAffinity and by other readers of `nodeSelectorTerms`. Terms are alternatives. A term without
conditions matches nothing. A term that cannot be read is left out and its error is kept, so that the caller
decides whether errors count.

Source: component-helpers `scheduling/corev1/nodeaffinity/nodeaffinity.go`, v1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from berth_sdk.errors import SelectorError
from berth_sdk.selectors import (
    EVERYTHING,
    LabelSelector,
    Operator,
    Requirement,
    mappings,
    plain_requirement,
)
from berth_sdk.slices import Work, at_once
from berth_sdk.tables import NodeTable

NODE_NAME_FIELD: Final = "metadata.name"
_OPERATORS: Final = tuple(Operator)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A condition on one field of the node: equal to `value`, or (`negated`) not equal.

    Nodes have one field, the name. Every other field reads as empty.
    """

    key: str
    value: str
    negated: bool = False

    @staticmethod
    def of(raw: Mapping[str, Any], path: str) -> FieldRequirement:
        """Read `{key, operator: In | NotIn, values: [one]}`. Raises SelectorError."""
        operator = raw.get("operator") or ""
        if operator not in ("In", "NotIn"):
            raise SelectorError(
                f'{path}.operator: Unsupported value: "{operator}": supported values: "In", "NotIn"'
            )
        values = raw.get("values") or []
        if len(values) != 1:
            raise SelectorError(f"{path}.values: Invalid value: {values!r}: must have one element")
        return FieldRequirement(str(raw.get("key") or ""), str(values[0]), operator == "NotIn")

    def matches(self, node_name: str) -> bool:
        """Return True if the node with this name meets the condition."""
        actual = node_name if self.key == NODE_NAME_FIELD else ""
        return (actual == self.value) is not self.negated

    def over(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes that meet the condition."""
        found = self.judged(nodes)
        return np.full(len(nodes), found) if isinstance(found, bool) else found

    def judged(self, nodes: NodeTable) -> NDArray[np.bool_] | bool:
        """Return `over`, or one answer for all rows where they have the same."""
        if self.key != NODE_NAME_FIELD:
            return self.matches("")
        position = nodes.position(self.value)
        if position is None:
            return self.negated
        mask = np.full(len(nodes), self.negated, dtype=np.bool_)
        mask[position] = not self.negated
        return mask


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One term: a node must meet all label requirements and all field requirements."""

    labels: LabelSelector
    fields: tuple[FieldRequirement, ...] = ()

    @staticmethod
    def of(raw: Mapping[str, Any], path: str) -> NodeSelectorTerm | None:
        """Read `{matchExpressions, matchFields}`. None: the term has neither. Raises SelectorError with the
        texts of all errors.
        """
        return at_once(NodeSelectorTerm.read(raw, path))

    @staticmethod
    def read(raw: Mapping[str, Any], path: str) -> Work[NodeSelectorTerm | None]:
        """Return `of`. Yields after each condition but the first."""
        if (plain := _plain_term(raw)) is not None:
            return plain
        expressions = mappings(raw.get("matchExpressions"), f"{path}.matchExpressions")
        fields = mappings(raw.get("matchFields"), f"{path}.matchFields")
        if not expressions and not fields:
            return None
        errors: list[str] = []
        requirements: list[Requirement] = []
        field_requirements: list[FieldRequirement] = []
        for i, item in enumerate(expressions):
            if i:
                yield
            try:
                requirements.append(Requirement.of(item, f"{path}.matchExpressions[{i}]", _OPERATORS))
            except SelectorError as err:
                errors.append(str(err))
        for i, item in enumerate(fields):
            if i:
                yield
            try:
                field_requirements.append(FieldRequirement.of(item, f"{path}.matchFields[{i}]"))
            except SelectorError as err:
                errors.append(str(err))
        if errors:
            raise SelectorError(joined(errors))
        return NodeSelectorTerm(LabelSelector(tuple(requirements)), tuple(field_requirements))

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Return True if one node matches."""
        return self.labels.matches(labels) and all(field.matches(node_name) for field in self.fields)

    def over(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes that match."""
        found = at_once(self.judged(nodes))
        return np.full(len(nodes), found) if isinstance(found, bool) else found

    def judged(self, nodes: NodeTable) -> Work[NDArray[np.bool_] | bool]:
        """Return `over`, or one answer for all rows where they have the same. Yields after each
        requirement.
        """
        mask = yield from self.labels.judged(nodes)
        if mask is False:
            return False
        for one in self.fields:
            found = one.judged(nodes)
            if found is False:
                return False
            if found is not True:
                mask = found if mask is True else mask & found
            yield
        return mask


def _plain_term(raw: Mapping[str, Any]) -> NodeSelectorTerm | None:
    """Return a term of one condition on a label, in its usual form; None: `read` has to read it."""
    expressions = raw.get("matchExpressions")
    if type(expressions) is not list or len(expressions) != 1 or raw.get("matchFields"):
        return None
    (item,) = expressions
    found = plain_requirement(item, _OPERATORS) if type(item) is dict else None
    return None if found is None else NodeSelectorTerm(LabelSelector((found,)))


@dataclass(frozen=True, slots=True)
class NodeSelector:
    """Alternative terms. `errors`: the texts of the terms that could not be read.

    >>> raw = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    >>> NodeSelector.of(raw).matches({"disk": "ssd"}, "node-1")
    True
    """

    terms: tuple[NodeSelectorTerm, ...] = ()
    errors: tuple[str, ...] = ()
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # A selector is a key of sets of nodes, and may have tens of thousands of terms.
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.terms, self.errors)))
        return cast(int, self._hash)

    @staticmethod
    def of(raw: Mapping[str, Any], path: str = "") -> NodeSelector:
        """Read `{nodeSelectorTerms}`. Errors of unreadable terms go to `errors`; `path` is the prefix of
        their places.
        """
        return at_once(NodeSelector.read(raw, path))

    @staticmethod
    def read(raw: Mapping[str, Any], path: str = "") -> Work[NodeSelector]:
        """Return `of`. Yields after each condition."""
        terms: list[NodeSelectorTerm] = []
        errors: list[str] = []
        where = f"{path}.nodeSelectorTerms" if path else "nodeSelectorTerms"
        try:
            items = mappings(raw.get("nodeSelectorTerms"), where)
        except SelectorError as err:
            return NodeSelector((), (str(err),))
        for i, item in enumerate(items):
            try:
                term = yield from NodeSelectorTerm.read(item, f"{where}[{i}]")
            except SelectorError as err:
                errors.append(str(err))
            else:
                if term is not None:
                    terms.append(term)
            yield
        return NodeSelector(tuple(terms), tuple(errors))

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Return True if one node matches a term. Unreadable terms match no node."""
        return any(term.matches(labels, node_name) for term in self.terms)

    def matches_in_steps(self, labels: Mapping[str, str], node_name: str) -> Work[bool]:
        """Return `matches`. Yields after each term."""
        for term in self.terms:
            if term.matches(labels, node_name):
                return True
            yield
        return False

    def over(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes that match a term. Unreadable terms match no node."""
        return at_once(self.over_in_steps(nodes))

    def over_in_steps(self, nodes: NodeTable) -> Work[NDArray[np.bool_]]:
        """Return `over`. Yields after each requirement; ends with the term that the last node matches."""
        mask = np.zeros(len(nodes), dtype=np.bool_)
        for term in self.terms:
            found = yield from term.judged(nodes)
            if found is True:
                return np.ones(len(nodes), dtype=np.bool_)
            if found is not False:
                mask |= found
            yield
        return mask

    def check(self) -> None:
        """Raise SelectorError if any term could not be read."""
        if self.errors:
            raise SelectorError(joined(self.errors))


@dataclass(frozen=True, slots=True)
class PreferredTerms:
    """Weighted terms, without terms of weight 0 and terms without conditions."""

    terms: tuple[tuple[NodeSelectorTerm, int], ...] = ()

    @staticmethod
    def of(raw: Sequence[Mapping[str, Any]], path: str = "") -> PreferredTerms:
        """Read a list of `{weight, preference}`. Raises SelectorError with the texts of all errors."""
        return at_once(PreferredTerms.read(raw, path))

    @staticmethod
    def read(raw: Sequence[Mapping[str, Any]], path: str = "") -> Work[PreferredTerms]:
        """Return `of`. Yields after each condition."""
        terms: list[tuple[NodeSelectorTerm, int]] = []
        errors: list[str] = []
        for i, item in enumerate(mappings(raw, path)):
            weight = item.get("weight") or 0
            preference = item.get("preference") or {}
            if not weight:
                continue
            try:
                term = yield from NodeSelectorTerm.read(preference, f"{path}[{i}]")
            except SelectorError as err:
                errors.append(str(err))
            else:
                if term is not None:
                    terms.append((term, int(weight)))
            yield
        if errors:
            raise SelectorError(joined(errors))
        return PreferredTerms(tuple(terms))

    def over(self, nodes: NodeTable) -> NDArray[np.int64]:
        """Return int64[n]: the sum of the weights of the terms that each node matches."""
        return at_once(self.over_in_steps(nodes))

    def over_in_steps(self, nodes: NodeTable) -> Work[NDArray[np.int64]]:
        """Return `over`. Yields after each requirement."""
        total = np.zeros(len(nodes), dtype=np.int64)
        of_all = 0
        for term, weight in self.terms:
            found = yield from term.judged(nodes)
            if found is True:
                of_all += weight
            elif found is not False:
                total += found * np.int64(weight)
            yield
        return total + of_all if of_all else total


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """A pod's demands on its node: every pair of `spec.nodeSelector`, and the required affinity terms.

    `affinity` None: the pod has no affinity stanza, which differs from a stanza without terms.
    """

    node_selector: LabelSelector = EVERYTHING
    affinity: NodeSelector | None = None

    @staticmethod
    def of_spec(spec: Mapping[str, Any]) -> RequiredNodeAffinity:
        """Read a pod's spec. Unreadable terms become errors of `affinity`."""
        return at_once(RequiredNodeAffinity.read(spec))

    @staticmethod
    def read(spec: Mapping[str, Any]) -> Work[RequiredNodeAffinity]:
        """Return `of_spec`. Yields after each pair and each condition."""
        pairs = []
        for key, value in (spec.get("nodeSelector") or {}).items():
            pairs.append(Requirement(key, Operator.IN, frozenset((value,))))
            yield
        required = required_stanza(spec)
        terms = None if required is None else (yield from NodeSelector.read(required))
        return RequiredNodeAffinity(LabelSelector(tuple(pairs)), terms)

    def matches(self, labels: Mapping[str, str], node_name: str) -> bool:
        """Return True if one node matches. Raises SelectorError when no term matches and one is
        unreadable.
        """
        return at_once(self.matches_in_steps(labels, node_name))

    def matches_in_steps(self, labels: Mapping[str, str], node_name: str) -> Work[bool]:
        """Return `matches`. Yields after each term."""
        if not self.node_selector.matches(labels):
            return False
        if self.affinity is None or (yield from self.affinity.matches_in_steps(labels, node_name)):
            return True
        self.affinity.check()
        return False

    def over(self, nodes: NodeTable) -> NDArray[np.bool_]:
        """Return bool[n]: the nodes that match. Unreadable terms match no node."""
        return at_once(self.over_in_steps(nodes))

    def over_in_steps(self, nodes: NodeTable) -> Work[NDArray[np.bool_]]:
        """Return `over`. Yields after each requirement."""
        found = yield from self.node_selector.judged(nodes)
        if found is False:
            return np.zeros(len(nodes), dtype=np.bool_)
        if self.affinity is None:
            return np.ones(len(nodes), dtype=np.bool_) if found is True else found
        mask = yield from self.affinity.over_in_steps(nodes)
        return mask if found is True else mask & found


def many_conditions(spec: Mapping[str, Any], most: int) -> bool:
    """Return True if the node selector and the required affinity of a spec have more than `most` parts."""
    terms = (required_stanza(spec) or {}).get("nodeSelectorTerms") or ()
    return len(spec.get("nodeSelector") or ()) + len(terms) > most


def required_stanza(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the pod's required node affinity as it is written, or None."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    stanza: Mapping[str, Any] | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return stanza


def preferred_stanza(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return the pod's preferred node affinity as it is written, or None."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    stanza: Sequence[Mapping[str, Any]] | None = affinity.get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    return stanza


def joined(texts: Sequence[str]) -> str:
    """Return several errors as one text, in the form of Kubernetes' aggregated errors."""
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
