"""Count again, from the API's objects alone, what the pods of each node request.

Written after kube-scheduler's rules and without berth's code: `component-helpers/resource/helpers.go`
(PodRequests) and `apimachinery/pkg/api/resource` (Value, MilliValue), v1.37.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

Json = Mapping[str, Any]
Amounts = Counter[str]
_Exact = dict[str, Fraction]
MOST: Final = (1 << 63) - 1
"""Go's int64: what a larger quantity is cut to."""
CPU: Final = "cpu"
PODS: Final = "pods"
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
_ENDED: Final = ("Succeeded", "Failed")


def exact(quantity: Any) -> Fraction:
    """Return a quantity in base units, cut to int64."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        raise ValueError(f"{str(quantity)[:50]} is no quantity")
    digits, exponent, suffix = found.groups()
    whole, _, part = digits.partition(".")
    # Python refuses to read more than 4300 digits at once, and no rule looks at more than these.
    sign = -1 if whole.startswith("-") else 1
    whole = whole.lstrip("+-").lstrip("0")
    if len(whole) > 40:
        return Fraction(sign * MOST)
    value = Fraction(int(f"{whole or 0}")) + Fraction(int(part[:40] or 0), 10 ** min(len(part), 40))
    scale = Fraction(10) ** max(-60, min(60, int(exponent))) if exponent else _SUFFIXES[suffix or ""]
    return sign * min(value * scale, Fraction(MOST))


def requests_of(pod: Json) -> Amounts:
    """Return what a pod requests in all: millicores of cpu, else base units, rounded up and cut to int64."""
    found: Amounts = Counter()
    for name, value in _summed(pod["spec"]).items():
        scaled = value * (1000 if name == CPU else 1)
        found[name] = min(-(-scaled.numerator // scaled.denominator), MOST)
    return found


def _summed(spec: Json) -> dict[str, Fraction]:
    total: _Exact = {}
    for container in spec.get("containers") or ():
        _add(total, _asked(container))
    sidecars: _Exact = {}
    peak: _Exact = {}
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(total, asked)
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            _add(asked, sidecars)
        _raise(peak, asked)
    _raise(total, peak)
    own = (spec.get("resources") or {}).get("requests") or {}
    for name, quantity in own.items():
        if name in (CPU, "memory") or name.startswith("hugepages-"):
            total[name] = exact(quantity)
    _add(total, {name: exact(quantity) for name, quantity in (spec.get("overhead") or {}).items()})
    return total


def _asked(container: Json) -> _Exact:
    asked = (container.get("resources") or {}).get("requests") or {}
    return {name: exact(quantity) for name, quantity in asked.items()}


def _add(total: _Exact, more: _Exact) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Fraction(0)) + value


def _raise(total: _Exact, least: _Exact) -> None:
    for name, value in least.items():
        total[name] = max(total.get(name, Fraction(0)), value)


def by_node(pods: Iterable[Json]) -> dict[str, Amounts]:
    """Return what the pods that have a node and have not ended request, and their number, by node."""
    found: dict[str, Amounts] = {}
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name and (pod.get("status") or {}).get("phase") not in _ENDED:
            on_node = found.setdefault(name, Counter())
            on_node.update(requests_of(pod))
            on_node[PODS] += 1
    return found
