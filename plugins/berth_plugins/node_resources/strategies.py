"""How full a node would be -> score: NodeResourcesFit's strategies, and their arguments.

Called by NodeResourcesFit at Score. All arithmetic uses whole numbers, truncated as upstream. Amounts whose
hundredfold leaves int64 are computed one by one, with Python's integers.

Source: `pkg/scheduler/framework/plugins/noderesources/{least_allocated,most_allocated,
requested_to_capacity_ratio,resource_allocation}.go` and
`pkg/scheduler/apis/config/validation/validation_pluginargs.go`, v1.38.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from berth_sdk.status import MAX_NODE_SCORE
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings, integer, mapping, maps
from berth_plugins.args.gates import EXACT_SCORES, is_on

Column: TypeAlias = NDArray[np.int64]
Percent: TypeAlias = Callable[[Column, Column], Column]
"""(part, whole > 0) -> the part in percent of the whole, entry by entry."""
PerResource: TypeAlias = Callable[[Percent, Column, Column], Column]
"""(how to compute a percentage, requested, allocatable > 0) -> 0..100, entry by entry."""

DEFAULT_RESOURCES: Final = (("cpu", 1), ("memory", 1))
_MAX_INT64: Final = 2**63 - 1
_MOST_EXACT: Final = _MAX_INT64 // MAX_NODE_SCORE
"""The largest amount whose hundredfold fits into int64."""
_MAX_WEIGHT: Final = 100
_MAX_SHAPE_SCORE: Final = 10
LEAST: Final = "LeastAllocated"
MOST: Final = "MostAllocated"
RATIO: Final = "RequestedToCapacityRatio"


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy of scoring. `resources`: (name, weight) in configured order. `only_positive`: resources with
    score 0 do not count in the mean, which is then rounded instead of truncated. `wraps`: amounts wrap at
    int64, as in kube-scheduler before 1.38; where the result is no score, the exact one takes its place.
    """

    resources: tuple[tuple[str, int], ...]
    per_resource: PerResource
    only_positive: bool = False
    wraps: bool = False

    def combine(
        self, used: Column, added: Column, allocatable: Column, weights: tuple[int, ...], count: int
    ) -> Column:
        """Return int64[count], the weighted mean of the scores of k resources.

        `used`, `allocatable`: int64[k, count]; `added`: int64[k, 1]. A resource that a node does not offer
        does not count for the node. A node that offers none of them scores 0.
        """
        if not weights:
            return np.zeros(count, dtype=np.int64)
        requested = used + added
        if self.wraps:
            wrapped = self._mean(wrapped_percent, requested, allocatable, weights)
            is_score = (wrapped >= 0) & (wrapped <= MAX_NODE_SCORE)
            if is_score.all():
                return wrapped
        if requested.size and requested.min() < 0:
            # Both amounts are at least 0, so only a sum that left int64 is negative.
            requested = np.where(requested < 0, _MAX_INT64, requested)
        exact = self._mean(percent, requested, allocatable, weights)
        return np.where(is_score, wrapped, exact) if self.wraps else exact

    def _mean(
        self, percent: Percent, requested: Column, allocatable: Column, weights: tuple[int, ...]
    ) -> Column:
        result: Column
        if np.count_nonzero(allocatable) == allocatable.size:
            scores = self.per_resource(percent, requested, allocatable)
            if not self.only_positive:
                result = _weighted(scores, weights) // sum(weights)
                return result
            counted = np.greater(scores, 0)
        else:
            offered = np.not_equal(allocatable, 0)
            scores = np.where(
                offered, self.per_resource(percent, requested, np.where(offered, allocatable, 1)), 0
            )
            counted = np.greater(scores, 0) if self.only_positive else offered
        total = _weighted(scores, weights)
        # If no resource counted, the total is 0 for any divisor.
        divisor = np.maximum(_weighted(counted.astype(np.int64), weights), 1)
        if self.only_positive:
            total, divisor = 2 * total + divisor, 2 * divisor
        result = total // divisor
        return result


def _weighted(columns: Column, weights: tuple[int, ...]) -> Column:
    """Return int64[n], the weighted sum of int64[k, n] with k weights."""
    total: Column = columns[0] if weights[0] == 1 else columns[0] * weights[0]
    for column, weight in zip(columns[1:], weights[1:], strict=True):
        total = total + (column if weight == 1 else column * weight)
    return total


def percent(part: Column, whole: Column) -> Column:
    """Return the part in percent of the whole, at most 100, exact."""
    part = np.minimum(part, whole)
    result: Column = part * MAX_NODE_SCORE // whole
    if part.size and part.max() > _MOST_EXACT:
        large = part > _MOST_EXACT
        pairs = zip(part[large].tolist(), whole[large].tolist(), strict=True)
        result[large] = [one * MAX_NODE_SCORE // all_of_it for one, all_of_it in pairs]
    return result


def wrapped_percent(part: Column, whole: Column) -> Column:
    """Return the part in percent of the whole as 64 bits hold it, as in kube-scheduler before 1.38."""
    result: Column = part * MAX_NODE_SCORE // whole
    return result


def least_allocated(percent: Percent, requested: Column, allocatable: Column) -> Column:
    """Return the free part; 0 where the pod does not fit."""
    return percent(np.where(requested > allocatable, 0, allocatable - requested), allocatable)


def most_allocated(percent: Percent, requested: Column, allocatable: Column) -> Column:
    """Return the used part, at most 100."""
    return percent(np.minimum(requested, allocatable), allocatable)


def ratio_of_shape(shape: Sequence[tuple[int, int]]) -> PerResource:
    """Return the piecewise linear function through (utilization, score) points, as a table of all 101
    values.
    """
    table = np.array([_interpolated(shape, used) for used in range(101)], dtype=np.int64)

    def scores(percent: Percent, requested: Column, allocatable: Column) -> Column:
        used = np.where(requested > allocatable, 100, percent(requested, allocatable))
        # A wrapped percentage may be any number. Beyond its ends the shape goes on as it ends.
        return table.take(used, mode="clip")

    return scores


def _interpolated(shape: Sequence[tuple[int, int]], used: int) -> int:
    if used <= shape[0][0]:
        return shape[0][1]
    for (left, low), (right, high) in pairwise(shape):
        if used <= right:
            # Truncated towards zero: a falling line is not rounded down.
            rise = (high - low) * (used - left)
            step = abs(rise) // (right - left)
            return low + (step if rise >= 0 else -step)
    return shape[-1][1]


def read_strategy(args: Mapping[str, Any], findings: Findings) -> Strategy:
    """Return the `scoringStrategy` of NodeResourcesFitArgs, LeastAllocated when there is none.

    Errors go to `findings`. Raises PluginArgsError for values of a wrong type.
    """
    path = "scoringStrategy"
    raw = mapping(args, path, path)
    wraps = not is_on(args, EXACT_SCORES, default=True)
    if raw is None:
        return Strategy(DEFAULT_RESOURCES, least_allocated, wraps=wraps)
    kind = raw.get("type") or ""
    if kind not in (LEAST, MOST, RATIO):
        findings.unsupported(f"{path}.type", kind, (LEAST, MOST, RATIO))
    resources = read_resources(raw, f"{path}.resources")
    for i, (name, weight) in enumerate(resources):
        if not 0 < weight <= _MAX_WEIGHT:
            findings.invalid(
                f"{path}.resources[{i}].weight",
                weight,
                f"resource weight of {name} not in valid range (0, {_MAX_WEIGHT}]",
            )
    shape = _read_shape(raw, kind, f"{path}.requestedToCapacityRatio", findings)
    if kind == RATIO and shape and not findings.texts:
        return Strategy(resources, ratio_of_shape(shape), only_positive=True, wraps=wraps)
    return Strategy(resources, most_allocated if kind == MOST else least_allocated, wraps=wraps)


def read_resources(raw: Mapping[str, Any], path: str) -> tuple[tuple[str, int], ...]:
    """Return a list of `{name, weight}`; cpu and memory when it is empty, weight 1 where none is given."""
    items = maps(raw, "resources", path)
    if not items:
        return DEFAULT_RESOURCES
    return tuple(
        (str(item.get("name") or ""), integer(item, "weight", f"{path}[{i}].weight") or 1)
        for i, item in enumerate(items)
    )


def _read_shape(raw: Mapping[str, Any], kind: str, path: str, findings: Findings) -> list[tuple[int, int]]:
    """Return (utilization, score 0..100) points, empty unless the type needs them."""
    given = mapping(raw, "requestedToCapacityRatio", path)
    if kind != RATIO:
        if given is not None:
            findings.forbidden(path, f"must be nil when type is not {RATIO}")
        return []
    if given is None:
        findings.required(path, f"must be specified when type is {RATIO}")
        return []
    points = [
        (
            integer(item, "utilization", f"{path}.shape[{i}].utilization"),
            integer(item, "score", f"{path}.shape[{i}].score"),
        )
        for i, item in enumerate(maps(given, "shape", f"{path}.shape"))
    ]
    check_shape(points, f"{path}.shape", findings)
    return [(used, score * MAX_NODE_SCORE // _MAX_SHAPE_SCORE) for used, score in points]


def check_shape(points: Sequence[tuple[int, int]], path: str, findings: Findings) -> None:
    """Report the errors in (utilization, score) points."""
    if not points:
        findings.required(path, "at least one point must be specified")
    for i, (before, after) in enumerate(pairwise(points), start=1):
        if before[0] >= after[0]:
            findings.invalid(
                f"{path}[{i}].utilization", after[0], "values must be sorted in increasing order"
            )
            break
    for i, (used, score) in enumerate(points):
        if not 0 <= used <= 100:
            findings.invalid(f"{path}[{i}].utilization", used, "not in valid range [0, 100]")
        if not 0 <= score <= _MAX_SHAPE_SCORE:
            findings.invalid(f"{path}[{i}].score", score, f"not in valid range [0, {_MAX_SHAPE_SCORE}]")
