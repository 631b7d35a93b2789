"""Tolerations against taints: the matching rule that several plugins share.

Source: `core/v1/toleration.go` and component-helpers `scheduling/corev1/helpers.go`, v1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from berth_sdk.node import Taint
from berth_sdk.pod import Toleration
from berth_sdk.selectors import parse_int64

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
COMPARISON_GATE: Final = "TaintTolerationComparisonOperators"
"""With this gate, off in 1.36, tolerations may have the operators Lt and Gt."""

_MANY: Final = 16
"""The number of tolerations from which they are looked up by key."""
_HARD: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")


def tolerates(toleration: Toleration, taint: Taint, *, compare: bool = False) -> bool:
    """Return True if one toleration covers one taint. `compare`: the operators Lt and Gt count."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator == "Exists":
        return True
    if compare and toleration.operator in ("Lt", "Gt"):
        bound, value = _decimal(toleration.value), _decimal(taint.value)
        if bound is None or value is None:
            return False
        return value < bound if toleration.operator == "Lt" else value > bound
    return False


def any_tolerates(tolerations: Sequence[Toleration], taint: Taint, *, compare: bool = False) -> bool:
    """Return True if any toleration covers the taint."""
    if len(tolerations) > _MANY:
        tolerations = _by_key.of(tolerations, taint.key)
    return any(tolerates(toleration, taint, compare=compare) for toleration in tolerations)


class _ByKey:
    """The last long list of tolerations by key, so that thousands of taints do not each read all of it."""

    def __init__(self) -> None:
        self._known: tuple[Sequence[Toleration], dict[str, list[Toleration]]] | None = None

    def of(self, tolerations: Sequence[Toleration], key: str) -> Sequence[Toleration]:
        """Return the tolerations with this key, and those that hold for every key."""
        known = self._known
        if known is None or known[0] is not tolerations:
            by_key: dict[str, list[Toleration]] = {}
            for one in tolerations:
                by_key.setdefault(one.key, []).append(one)
            # Without repeats: these are read for every taint.
            by_key[""] = list(dict.fromkeys(by_key.get("", ())))
            known = self._known = (tolerations, by_key)
        return [*known[1][""], *(known[1].get(key, ()) if key else ())]


_by_key: Final = _ByKey()


def first_untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, compare: bool = False
) -> Taint | None:
    """Return the first taint, in node order, that excludes the pod. None: the pod may run on the node."""
    for taint in taints:
        if taint.effect in _HARD and not any_tolerates(tolerations, taint, compare=compare):
            return taint
    return None


def _decimal(text: str) -> int | None:
    # Stricter than the comparison of labels: no sign but a minus, no leading zeros.
    return parse_int64(text) if _DECIMAL.fullmatch(text) else None
