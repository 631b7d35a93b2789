"""Checks names, labels and quantities as the API server does. Used by every check in this package.

Source: apimachinery `util/validation/validation.go` (names, label values, qualified names).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from berth_host.errors.cluster import FieldProblem
from berth_sdk.quantity import nano_value

_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
MAX_SUBDOMAIN: Final = 253
MIN_INT32: Final = -(2**31)
MAX_INT32: Final = 2**31 - 1


class Problems:
    """The problems of one object. Every check adds its problems; none stops at the first."""

    def __init__(self) -> None:
        self.found: list[FieldProblem] = []

    def add(self, path: str, problem: str) -> None:
        """Add a problem; its text ends in the cure."""
        self.found.append(FieldProblem(path, problem))

    def required(self, parent: Mapping[str, Any], path: str, *keys: str) -> bool:
        """Add a problem for every key without a value; return True if there is none."""
        missing = [key for key in keys if parent.get(key) in (None, "", [], {})]
        for key in missing:
            self.add(join(path, key), "is required")
        return not missing

    def one_of(self, value: Any, path: str, choices: Collection[str]) -> bool:
        """Return True if `value` is one of `choices`; else add a problem."""
        if value in choices:
            return True
        self.add(path, f"{value!r} is not supported: use {', '.join(filter(None, choices))}")
        return False

    def unique(self, values: Iterable[tuple[str, Any]]) -> None:
        """Add a problem for every repeated value. `values`: pairs of path and value."""
        seen: set[Any] = set()
        for path, value in values:
            if value in seen:
                self.add(path, f"{value!r} appears twice: remove or rename one")
            seen.add(value)


def join(path: str, key: str) -> str:
    """Return the path of `key` below `path`."""
    return f"{path}.{key}" if path else key


def items(parent: Mapping[str, Any], path: str, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and value of each item of a list; a missing list or null is empty."""
    for i, item in enumerate(parent.get(key) or ()):
        yield f"{join(path, key)}[{i}]", item


def check_object_name(problems: Problems, name: Any, path: str, *, label: bool = False) -> None:
    """Check for a DNS subdomain, or with `label` for a DNS label."""
    if not name:
        problems.add(path, "is required")
    elif not isinstance(name, str):
        problems.add(path, f"must be text, and is {name!r:.60}: put it in quotes")
    elif label and not _DNS_LABEL.fullmatch(name):
        problems.add(path, f"{name!r} is not a DNS label: use at most 63 lower case letters, digits and '-'")
    elif not label and (len(name) > MAX_SUBDOMAIN or not _DNS_SUBDOMAIN.fullmatch(name)):
        problems.add(
            path, f"{name!r} is not a DNS name: use at most 253 lower case letters, digits, '-' and '.'"
        )


@lru_cache(maxsize=1024)
def label_key_problem(key: str) -> str | None:
    """Return the problem with a label key (`[prefix/]name`), None without one."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_SUBDOMAIN or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return f"{key!r} is not a label key: the part before '/' must be a DNS name"
    if not _LABEL_NAME.fullmatch(name):
        return (
            f"{key!r} is not a label key: use at most 63 letters, digits, '-', '_' and '.',"
            " beginning and ending with a letter or digit"
        )
    return None


@lru_cache(maxsize=1024)
def label_value_problem(value: str) -> str | None:
    """Return the problem with a label value, None without one."""
    if not value or _LABEL_NAME.fullmatch(value):
        return None
    return (
        f"{value!r} is not a label value: use at most 63 letters, digits, '-', '_' and '.',"
        " beginning and ending with a letter or digit"
    )


def check_label_key(problems: Problems, key: Any, path: str) -> None:
    """Check a required key of a selector, taint or topology."""
    if not key:
        problems.add(path, "is required")
    elif (problem := label_key_problem(key)) is not None:
        problems.add(path, problem)


def check_labels(problems: Problems, labels: Mapping[str, str] | None, path: str) -> None:
    """Check keys and values of a map of labels."""
    for key, value in (labels or {}).items():
        for problem in (label_key_problem(key), label_value_problem(value or "")):
            if problem is not None:
                problems.add(f"{path}.{key}", problem)


def check_metadata(problems: Problems, metadata: Mapping[str, Any], path: str = "metadata") -> None:
    """Check labels and annotation keys. Callers that know the kind check the names."""
    if labels := metadata.get("labels"):
        check_labels(problems, labels, join(path, "labels"))
    for key in metadata.get("annotations") or ():
        if (problem := label_key_problem(key.lower())) is not None:
            problems.add(f"{join(path, 'annotations')}.{key}", problem.replace("label key", "annotation key"))


def check_int32(problems: Problems, parent: Mapping[str, Any], path: str, *keys: str) -> None:
    """Check 32-bit integers; missing values and null are valid."""
    for key in keys:
        value = parent.get(key)
        if value is not None and not MIN_INT32 <= value <= MAX_INT32:
            problems.add(join(path, key), f"must be {MIN_INT32} to {MAX_INT32}, not {value}")


def check_amounts(problems: Problems, amounts: Mapping[str, Any] | None, path: str) -> None:
    """Check a map of quantities: resource names must be valid, amounts not below zero."""
    for name, amount in (amounts or {}).items():
        if (problem := label_key_problem(name)) is not None:
            problems.add(f"{path}.{name}", problem.replace("label key", "resource name"))
        if amount is not None and nano_value(amount) < 0:
            problems.add(f"{path}.{name}", f"{amount!r} is below zero")
