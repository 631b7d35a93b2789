"""Label selectors: parsed once, then matched against one labels map or a whole table of nodes or pods.

Used by plugins that read selectors, by the host for selectors of the configuration and of event interests,
and by `berth_sdk.node_selectors`. A null selector matches nothing. An empty selector matches everything.

Source: apimachinery `labels/selector.go` and `apis/meta/v1/helpers.go` (LabelSelectorAsSelector).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from berth_sdk.errors import SelectorError
from berth_sdk.slices import Work, at_once

if TYPE_CHECKING:
    from berth_sdk.tables.dictionary import Dictionary

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MAX_NAME: Final = 63
_MAX_PREFIX: Final = 253
_INT64: Final = 1 << 63
_MANY: Final = 16
"""The number of requirements from which a selector looks them up by key."""


# The usual form of a key: a name without a prefix. Values have the same form.
_PLAIN: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PLAIN_LINES: Final = re.compile(rf"(?:{_PLAIN.pattern})?(?:\n(?:{_PLAIN.pattern})?)*")


class Operator(Enum):
    """The comparison of a requirement. The values are the API's spellings."""

    # The hash of an Enum is a Python function, and selectors hash thousands of operators.
    __hash__ = object.__hash__

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_BY_SPELLING: Final = {operator.value: operator for operator in Operator}
_WITH_VALUES: Final = frozenset((Operator.IN, Operator.NOT_IN))
_WITHOUT_VALUES: Final = frozenset((Operator.EXISTS, Operator.DOES_NOT_EXIST))
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
        plain = plain_requirement(raw, operators)
        if plain is not None:
            return plain
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
        found = self.judged(table)
        return np.full(len(table), found) if isinstance(found, bool) else found

    def judged(self, table: Labelled) -> NDArray[np.bool_] | bool:
        """Return `over`, or one answer for all rows where a look-up shows that they have the same."""
        codes, values = table.label(self.key)
        if len(values) == 1:
            return self.accepts(None)  # no row has the label
        operator = self.operator
        if operator is Operator.EXISTS:
            return np.not_equal(codes, 0)
        if operator is Operator.DOES_NOT_EXIST:
            return np.equal(codes, 0)
        if operator is Operator.GT or operator is Operator.LT:
            return self._compared(values).take(codes)
        if len(self.values) == 1:
            (value,) = self.values
            code = values.find(value)
            if code < 0:
                return operator is Operator.NOT_IN
            found = np.equal(codes, code)
        else:
            found = values.members(self.values).take(codes)
        return found if operator is Operator.IN else np.logical_not(found)

    def _compared(self, values: Dictionary[str]) -> NDArray[np.bool_]:
        """Return bool[number of codes]: the values above or below the bound."""
        (bound_text,) = self.values
        bound = parse_int64(bound_text)
        numbers, are_numbers = values.numbers(parse_int64)
        if bound is None:
            return np.zeros(len(values), dtype=np.bool_)
        found: NDArray[np.bool_] = numbers > bound if self.operator is Operator.GT else numbers < bound
        return found & are_numbers


def plain_requirement(raw: Mapping[str, Any], operators: Sequence[Operator]) -> Requirement | None:
    """Return the requirement as `Requirement.of` does, if it has the usual form; None: `of` has to read it.

    Faster than `of`, for objects with tens of thousands of requirements.
    """
    key, operator, values = raw.get("key"), _BY_SPELLING.get(raw.get("operator") or ""), raw.get("values")
    if operator not in operators or type(key) is not str or not _PLAIN.fullmatch(key):
        return None
    if operator in _WITHOUT_VALUES:
        return None if values else Requirement(key, operator)
    if operator not in _WITH_VALUES or not values:
        return None
    return Requirement(key, operator, frozenset(values)) if _are_plain(values) else None


def _are_plain(values: Sequence[Any]) -> bool:
    """Return True if all values are empty, or have the usual form. One look for thousands of values."""
    if len(values) <= _MANY:
        return all(type(one) is str and (not one or _PLAIN.fullmatch(one)) for one in values)
    try:
        lines = "\n".join(values)
    except TypeError:
        return False
    return lines.count("\n") == len(values) - 1 and _PLAIN_LINES.fullmatch(lines) is not None


def _plain_selector(raw: Any) -> LabelSelector | None:
    """Return the selector as `LabelSelector.read` does, if it is a few pairs in their usual form; else None.

    Faster, for pods with tens of thousands of terms.
    """
    if type(raw) is not dict or raw.get("matchExpressions"):
        return None
    equal = raw.get("matchLabels")
    if type(equal) is not dict or len(equal) > _MANY:
        return None
    requirements = []
    for key, value in equal.items():
        if type(key) is not str or type(value) is not str or not _PLAIN.fullmatch(key):
            return None
        if value and not _PLAIN.fullmatch(value):
            return None
        requirements.append(Requirement(key, Operator.IN, frozenset((value,))))
    return LabelSelector(tuple(requirements))


@dataclass(frozen=True, slots=True, eq=False)
class _ByKey:
    """Thousands of requirements, matched in time that follows the number of an object's labels.

    `needed`: the keys that a label must have, as a requirement does not accept its absence.
    """

    requirements: Mapping[str, Sequence[Requirement]]
    needed: frozenset[str]

    @staticmethod
    def of(requirements: Sequence[Requirement]) -> _ByKey:
        by_key: dict[str, list[Requirement]] = {}
        for one in requirements:
            by_key.setdefault(one.key, []).append(one)
        return _ByKey(by_key, frozenset(one.key for one in requirements if not one.accepts(None)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        if len(self.needed) > len(labels) or not all(key in labels for key in self.needed):
            return False
        return all(
            one.accepts(value) for key, value in labels.items() for one in self.requirements.get(key, ())
        )


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all be met. `requirements` None: the selector was null and matches nothing.

    >>> LabelSelector.of({"matchLabels": {"app": "web"}}).matches({"app": "web", "tier": "front"})
    True
    >>> LabelSelector.of(None).matches({}), LabelSelector.of({}).matches({})
    (False, True)
    """

    requirements: tuple[Requirement, ...] | None = ()
    _by_key: _ByKey | None = field(default=None, init=False, repr=False, compare=False)
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        # A selector is a key of plans and counts, and may have tens of thousands of requirements.
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(self.requirements))
        return cast(int, self._hash)

    @staticmethod
    def of(raw: Mapping[str, Any] | None, path: str = "labelSelector") -> LabelSelector:
        """Read `{matchLabels, matchExpressions}`. Raises SelectorError, whose text begins with `path`."""
        return at_once(LabelSelector.read(raw, path))

    @staticmethod
    def read(raw: Mapping[str, Any] | None, path: str = "labelSelector") -> Work[LabelSelector]:
        """Return `of`. Yields after each requirement but those of a short selector."""
        if (short := _plain_selector(raw)) is not None:
            return short
        if raw is None:
            return LabelSelector(None)
        requirements: list[Requirement] = []
        equal, expressions = raw.get("matchLabels"), raw.get("matchExpressions")
        if equal is not None:
            for key, value in _mapping(equal, f"{path}.matchLabels").items():
                pair = {"key": key, "operator": "In", "values": [value]}
                requirements.append(Requirement.of(pair, f"{path}.matchLabels"))
                yield
        if expressions is not None:
            for i, item in enumerate(mappings(expressions, f"{path}.matchExpressions")):
                plain = plain_requirement(item, LABEL_OPERATORS)
                requirements.append(plain or Requirement.of(item, f"{path}.matchExpressions[{i}]"))
                yield
        return LabelSelector(tuple(requirements))

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

    @property
    def is_long(self) -> bool:
        """True if one look at an object's labels costs less than a look at each requirement."""
        return self.requirements is not None and len(self.requirements) > _MANY

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if a labels map meets every requirement."""
        requirements = self.requirements
        if requirements is None:
            return False
        if len(requirements) > _MANY:
            by_key = self._by_key
            if by_key is None:
                by_key = _ByKey.of(requirements)
                object.__setattr__(self, "_by_key", by_key)
            return by_key.matches(labels)
        return all(one.matches(labels) for one in requirements)

    def over(self, table: Labelled) -> NDArray[np.bool_]:
        """Return bool[n]: the rows whose labels meet every requirement."""
        found = at_once(self.judged(table))
        return np.full(len(table), found) if isinstance(found, bool) else found

    def judged(self, table: Labelled) -> Work[NDArray[np.bool_] | bool]:
        """Return `over`, or one answer for all rows where they have the same. Yields after each requirement;
        ends with the first one that no row meets.
        """
        if self.requirements is None:
            return False
        mask: NDArray[np.bool_] | bool = True
        for one in self.requirements:
            found = one.judged(table)
            if found is False:
                return False
            if found is not True:
                mask = found if mask is True else mask & found
            yield
        return mask


EVERYTHING: Final = LabelSelector()
"""The empty selector, which matches everything."""


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
        # The first test is much faster, and nearly always enough.
        if type(item) is not dict and not isinstance(item, Mapping):
            raise SelectorError(f"{path}[{i}]: must be a map, not {type(item).__name__}")
    return raw


def _mapping(raw: Any, path: str) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if type(raw) is not dict and not isinstance(raw, Mapping):
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
    elif len(values) != 1:
        shown = ",".join(map(_quoted, values))
        raise SelectorError(
            f"{path}.values: Invalid value: [{shown}]: for 'Gt', 'Lt' operators, exactly one value "
            "is required"
        )
    elif parse_int64(values[0]) is None:
        raise SelectorError(
            f"{path}.values[0]: Invalid value: {_quoted(values[0])}: for 'Gt', 'Lt' operators, the value "
            "must be an integer"
        )


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
