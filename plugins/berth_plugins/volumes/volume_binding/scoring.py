"""How full the volumes of a pod would be -> score. Called at Score, with the gate StorageCapacityScoring.

Sums and products are 64 bits wide, and wrap, as in kube-scheduler: a full volume of 2^63 bytes may count as
an empty one.

Source: `pkg/scheduler/framework/plugins/volumebinding/{volume_binding,scorer}.go`, v1.38.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from berth_sdk.quantity import NANO
from berth_sdk.status import MAX_NODE_SCORE
from numpy.typing import NDArray

from berth_plugins.args.findings import Findings, integer, maps
from berth_plugins.args.gates import EXACT_VOLUME_SIZES, is_on
from berth_plugins.node_resources.strategies import check_shape, ratio_of_shape, wrapped_percent
from berth_plugins.volumes.records import Claim, Volume
from berth_plugins.volumes.volume_binding.finding import Found
from berth_plugins.volumes.volume_binding.provisioning import Capacity

DEFAULT_SHAPE: Final = ((0, 10), (100, 0))
_MAX_SHAPE_SCORE: Final = 10
_MAX_INT64: Final = 2**63 - 1
Numbers = NDArray[np.int64]


class CapacityScore:
    """The score for the share of used capacity, in percent, by the `shape` of VolumeBindingArgs."""

    def __init__(self, args: Mapping[str, Any], findings: Findings) -> None:
        """Errors go to `findings`. Raises PluginArgsError for values of a wrong type."""
        self._exact_sizes = is_on(args, EXACT_VOLUME_SIZES, default=True)
        points = [
            (
                integer(item, "utilization", f"shape[{i}].utilization"),
                integer(item, "score", f"shape[{i}].score"),
            )
            for i, item in enumerate(maps(args, "shape", "shape"))
        ] or list(DEFAULT_SHAPE)
        check_shape(points, "shape", findings)
        scaled = [(used, score * MAX_NODE_SCORE // _MAX_SHAPE_SCORE) for used, score in points]
        self._ratio = ratio_of_shape(scaled)

    def over(self, found: Found) -> Numbers:
        """Return int64[n], 0..100: the mean over the classes of a row's volumes, rounded; 0 without volumes.

        Existing volumes count if a row has any, else the volumes that would be provisioned.
        """
        count = len(found.passed)
        classes: defaultdict[str, _Class] = defaultdict(lambda: _Class(count))
        static = np.zeros(count, dtype=np.bool_)
        for match in found.matches:
            has = match.numbers >= 0
            static |= has
            numbers, positions = np.unique(match.numbers[has], return_inverse=True)
            if not len(numbers):
                continue
            # The volumes of one claim are of one class.
            volumes = [match.volumes[number] for number in numbers.tolist()]
            its = classes[volumes[0].class_name]
            its.ask(has, self._requested(match.claim))
            its.room[has] += np.array([self._capacity(one) for one in volumes], dtype=np.int64)[positions]
        for provision in found.provisions:
            if provision.numbers is None:
                continue
            here = provision.needed & ~static
            its = classes[provision.claim.class_name]
            its.ask(here, self._requested(provision.claim))
            totals = np.array([self._total(pool) for pool in provision.pools] or [0], dtype=np.int64)
            # Free space counts once per class, for any number of claims.
            its.room = np.where(here, totals.take(np.maximum(provision.numbers, 0)), its.room)
        return self._mean(list(classes.values()), count)

    def _requested(self, claim: Claim) -> int:
        return _bytes(claim.requested_nano or 0) if self._exact_sizes else claim.requested_wrapped

    def _capacity(self, volume: Volume) -> int:
        return _bytes(volume.capacity_nano) if self._exact_sizes else volume.capacity_wrapped

    def _total(self, pool: Capacity) -> int:
        return pool.total if self._exact_sizes else pool.total_wrapped

    def _mean(self, classes: Sequence[_Class], count: int) -> Numbers:
        total = np.zeros(count, dtype=np.int64)
        counted = np.zeros(count, dtype=np.int64)
        for its in classes:
            empty = its.room == 0
            # A class without any room counts as full.
            score = self._ratio(
                wrapped_percent, np.where(empty, 2, its.requested), np.where(empty, 1, its.room)
            )
            total += np.where(its.used, score, 0)
            counted += its.used
        divisor = np.maximum(counted, 1)
        mean: Numbers = (2 * total + divisor) // (2 * divisor)
        return mean


class _Class:
    """One storage class: requested and available bytes, and the rows where a volume of it is used."""

    def __init__(self, count: int) -> None:
        self.requested: Numbers = np.zeros(count, dtype=np.int64)
        self.room: Numbers = np.zeros(count, dtype=np.int64)
        self.used: NDArray[np.bool_] = np.zeros(count, dtype=np.bool_)

    def ask(self, here: NDArray[np.bool_], amount: int) -> None:
        """Add a claim on these rows."""
        self.requested += here * np.int64(amount)
        self.used |= here


def _bytes(nano: int) -> int:
    return min(-(-nano // NANO), _MAX_INT64)
