"""Label selectors: parsed once, then matched against one labels map or a whole table of nodes or pods.

Used by plugins that read selectors, by the host for selectors of the configuration and of event interests,
and by `berth_sdk.node_selectors`. A null selector matches nothing. An empty selector matches everything.

Source: apimachinery `labels/selector.go` and `apis/meta/v1/helpers.go` (LabelSelectorAsSelector).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from berth_sdk.errors import SelectorError

if TYPE_CHECKING:
    from berth_sdk.tables.dictionary import Dictionary

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MAX_NAME: Final = 63
_MAX_PREFIX: Final = 253
_INT64: Final = 1 << 63


class Operator(Enum):
    """How a requirement compares. The values are the API's spellings."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


LABEL_OPERATORS: Final = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
"""The operators of a LabelSelector. Node selectors have Gt and Lt as well."""


class Labelled(Protocol):
    """A table with columns of labels: `NodeTable`, `PodTable`."""

    def __len__(self) -> int: ...

    def label(self, key: str) -> tuple[NDArray[np.int32], Dictionary[str]]:
        """Return int32[n] codes of the label's values (0: absent), and their dictionary."""
        ...


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. Gt and Lt compare 64-bit integers, strictly."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    @staticmethod
    def of(raw: Mapping[str, Any], path: str, operators: Sequence[Operator] = LABEL_OPERATORS) -> Requirement:
        """Read `{key, operator, values}`. Raises SelectorError, whose text begins with `path`."""
        known = {operator.value: operator for operator in operators}
        operator = known.get(raw.get("operator") or "")
        if operator is None:
            supported = ", ".join(f'"{name}"' for name in known)
            raise SelectorError(
                f"{path}.operator: Unsupported value: {_quoted(raw.get('operator') or '')}:"
                f" supported values: {supported}"
            )
        key = str(raw.get("key") or "")
        values = [str(value) for value in raw.get("values") or ()]
        _check_count(operator, values, path)
        if not is_label_key(key):
            raise SelectorError(
                f"{path}.key: Invalid value: {_quoted(key)}: not a label key, as example.com/zone"
            )
        for i, value in enumerate(values):
            if not is_label_value(value):
                raise SelectorError(
                    f"{path}.values[{i}]: Invalid value: {_quoted(value)}: not a label value: at most 63"
                    " letters, digits, '-', '_' and '.', with a letter or digit at both ends"
                )
        return Requirement(key, operator, frozenset(values))

    def accepts(self, value: str | None) -> bool:
        """Return True if the label's value meets the condition. None: the label is missing."""
        if self.operator is Operator.IN:
            return value in self.values
        if self.operator is Operator.NOT_IN:
            return value not in self.values
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        number, bound = parse_int64(value), parse_int64(next(iter(self.values)))
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if a labels map meets the condition."""
        return self.accepts(labels.get(self.key))

    def over(self, table: Labelled) -> NDArray[np.bool_]:
        """Return bool[n]: the rows whose labels meet the condition. One test per distinct value, not per
        row.
        """
        codes, values = table.label(self.key)
        if self.operator is Operator.EXISTS:
            return np.not_equal(codes, 0)
        if self.operator is Operator.DOES_NOT_EXIST:
            return np.equal(codes, 0)
        if self.operator in (Operator.GT, Operator.LT):
            return values.where(self.accepts).take(codes)
        if len(self.values) == 1:
            found = np.equal(codes, values.find(next(iter(self.values))))
        else:
            found = values.members(self.values).take(codes)
        return found if self.operator is Operator.IN else np.logical_not(found)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all be met. `requirements` None: the selector was null and matches nothing.

    >>> LabelSelector.of({"matchLabels": {"app": "web"}}).matches({"app": "web", "tier": "front"})
    True
    >>> LabelSelector.of(None).matches({}), LabelSelector.of({}).matches({})
    (False, True)
    """

    requirements: tuple[Requirement, ...] | None = ()

    @staticmethod
    def of(raw: Mapping[str, Any] | None, path: str = "labelSelector") -> LabelSelector:
        """Read `{matchLabels, matchExpressions}`. Raises SelectorError, whose text begins with `path`."""
        if raw is None:
            return LabelSelector(None)
        equal = [
            Requirement.of({"key": key, "operator": "In", "values": [value]}, f"{path}.matchLabels")
            for key, value in _mapping(raw.get("matchLabels"), f"{path}.matchLabels").items()
        ]
        expressions = [
            Requirement.of(item, f"{path}.matchExpressions[{i}]")
            for i, item in enumerate(mappings(raw.get("matchExpressions"), f"{path}.matchExpressions"))
        ]
        return LabelSelector((*equal, *expressions))

    @staticmethod
    def equal_to(labels: Mapping[str, str]) -> LabelSelector:
        """Return a selector for exactly these `labels`, without a check. An empty map matches everything."""
        return LabelSelector(
            tuple(Requirement(key, Operator.IN, frozenset((value,))) for key, value in labels.items())
        )

    @staticmethod
    def parse(text: str) -> LabelSelector:
        """Read the text form, as in `app=web,tier in (a, b),!legacy`. Raises SelectorError.

        >>> LabelSelector.parse("app=web, tier notin (db, cache)").matches({"app": "web"})
        True
        """
        return LabelSelector(tuple(_parsed(part, text) for part in _split(text)))

    @property
    def is_empty(self) -> bool:
        """True if the selector matches everything: not null, and without a requirement."""
        return self.requirements is not None and not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if a labels map meets every requirement."""
        return self.requirements is not None and all(one.matches(labels) for one in self.requirements)

    def over(self, table: Labelled) -> NDArray[np.bool_]:
        """Return bool[n]: the rows whose labels meet every requirement."""
        if self.requirements is None:
            return np.zeros(len(table), dtype=np.bool_)
        return all_of([one.over(table) for one in self.requirements], len(table))


EVERYTHING: Final = LabelSelector()
"""The empty selector, which matches everything."""


def all_of(masks: Sequence[NDArray[np.bool_]], count: int) -> NDArray[np.bool_]:
    """Return bool[count]: the rows that are true in every mask. No mask: all rows."""
    if not masks:
        return np.ones(count, dtype=np.bool_)
    result = masks[0]
    for mask in masks[1:]:
        result = result & mask
    return result


def is_label_key(key: str) -> bool:
    """Return True for `name` or `prefix/name`, as the API accepts it for a label, a taint or an extended
    resource.
    """
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _MAX_PREFIX or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return True for an empty text, or at most 63 characters with a letter or digit at both ends."""
    return not value or (len(value) <= _MAX_NAME and _NAME.fullmatch(value) is not None)


def parse_int64(text: str | None) -> int | None:
    """Return a 64-bit integer in decimal digits, or None where the text is not one.

    >>> parse_int64("+07"), parse_int64("1_000"), parse_int64(None)
    (7, None, None)
    """
    # int() would also accept underscores, blanks and digits of other scripts.
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


def mappings(raw: Any, path: str) -> list[Mapping[str, Any]]:
    """Return a list of maps, empty where it is missing. Raises SelectorError."""
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise SelectorError(f"{path}: must be a list, not {type(raw).__name__}")
    for i, item in enumerate(raw):
        if not isinstance(item, Mapping):
            raise SelectorError(f"{path}[{i}]: must be a map, not {type(item).__name__}")
    return raw


def _mapping(raw: Any, path: str) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise SelectorError(f"{path}: must be a map, not {type(raw).__name__}")
    return raw


def _check_count(operator: Operator, values: Sequence[str], path: str) -> None:
    if operator in (Operator.IN, Operator.NOT_IN):
        if not values:
            raise SelectorError(f"{path}.values: Required value: In and NotIn need at least one")
    elif operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        if values:
            raise SelectorError(
                f"{path}.values: Invalid value: {list(values)!r}: Exists and DoesNotExist take none"
            )
    elif len(values) != 1 or parse_int64(values[0]) is None:
        raise SelectorError(f"{path}.values: Invalid value: {list(values)!r}: Gt and Lt need one integer")


def _quoted(value: object) -> str:
    return f'"{value}"'


_SET_FORM: Final = re.compile(r"(\S+?)\s+(in|notin)\s*\((.*)\)")
_EQUAL_FORM: Final = re.compile(r"([^!=\s]+)\s*(==|=|!=)\s*(\S*)")
_COMPARE_FORM: Final = re.compile(r"([^<>\s]+)\s*([<>])\s*(\S+)")


def _split(text: str) -> list[str]:
    """Return the parts between the commas outside parentheses, without blank parts."""
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _parsed(part: str, text: str) -> Requirement:
    operators = tuple(Operator)
    if match := _SET_FORM.fullmatch(part):
        key, word, inside = match.groups()
        values = [value.strip() for value in inside.split(",")]
        operator = Operator.IN if word == "in" else Operator.NOT_IN
    elif match := _EQUAL_FORM.fullmatch(part):
        key, sign, value = match.groups()
        values = [value]
        operator = Operator.NOT_IN if sign == "!=" else Operator.IN
    elif match := _COMPARE_FORM.fullmatch(part):
        key, sign, value = match.groups()
        values = [value]
        operator = Operator.GT if sign == ">" else Operator.LT
    else:
        key, values = part.removeprefix("!").strip(), []
        operator = Operator.DOES_NOT_EXIST if part.startswith("!") else Operator.EXISTS
    raw = {"key": key, "operator": operator.value, "values": values}
    return Requirement.of(raw, f"selector {_quoted(text)}", operators)
