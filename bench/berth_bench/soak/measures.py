"""What a soak measures of the host: its own metrics, and what Linux says of its process.

Called by `hosts`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from berth_bench.soak.descriptors import descriptors

_ANSWERS_WITHIN_S: Final = 10.0
ENTRY_KB: Final[Mapping[str, float]] = {"events": 3.0, "attempts": 4.0, "pods": 6.0}
"""About how much memory an entry takes, in KiB of resident memory, as seen in a soak.

An event that is remembered for its repetitions (its JSON, key and times) goes when it was quiet for six
minutes, or as the oldest of 10 000. An attempt is a diagnosis with its share of the pod's history. The latest
attempts of 4096 pods are kept, and as many earlier ones. A pod is its parsed object, its record and its row.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """`tasks` of its event loop, by what they run; `reservations` of plugins, alive or not given back;
    `assumed` pods in its cache; `waiting` pods in its queue; `open`: descriptors by name.
    """

    tasks: Mapping[str, int]
    reservations: int
    assumed: int
    waiting: int
    open: Mapping[str, int]

    @property
    def task_count(self) -> int:
        """Tasks of all kinds."""
        return sum(self.tasks.values())

    @property
    def fds(self) -> int:
        """Open descriptors."""
        return sum(self.open.values())

    def is_within(self, other: Reading) -> bool:
        """Whether nothing that must come back to where it was stands above `other`."""
        held = self.reservations + self.assumed
        return not held and self.task_count <= other.task_count and self.fds <= other.fds


def typical(readings: Sequence[Reading]) -> Reading:
    """Of each figure the median. At any one reading an event may be under way, which is a task more, or a
    probe, for which its keeper waits in one task instead of two.
    """
    return Reading(
        tasks=_middle(readings, lambda one: one.task_count).tasks,
        reservations=_middle(readings, lambda one: one.reservations).reservations,
        assumed=_middle(readings, lambda one: one.assumed).assumed,
        waiting=_middle(readings, lambda one: one.waiting).waiting,
        open=_middle(readings, lambda one: one.fds).open,
    )


def _middle(readings: Sequence[Reading], figure: Callable[[Reading], int]) -> Reading:
    """The one that is in the middle by this figure; of two, the one with less."""
    return sorted(readings, key=figure)[(len(readings) - 1) // 2]


async def read(port: int, pid: int) -> Reading:
    """Ask the host. Raises aiohttp.ClientError and OSError where it does not answer or is gone."""
    sums: dict[str, float] = {}
    tasks: dict[str, int] = {}
    for sample in await _samples(port):
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        if sample.name == "berth_tasks":
            tasks[sample.labels["coroutine"]] = int(sample.value)
    return Reading(
        tasks=tasks,
        reservations=int(sums["berth_reservations"]),
        assumed=int(sums["scheduler_cache_size_assumed_pods"]),
        waiting=int(sums["scheduler_pending_pods"]),
        open=descriptors(pid),
    )


async def failures(port: int, plugin: str, kinds: Collection[str]) -> int:
    """Calls of a plugin that failed in one of these ways so far. Raises as `read` does."""
    return int(
        sum(
            sample.value
            for sample in await _samples(port)
            if sample.name == "berth_plugin_failures_total"
            and sample.labels["plugin"] == plugin
            and sample.labels["kind"] in kinds
        )
    )


async def _samples(port: int) -> list[Sample]:
    connector = aiohttp.TCPConnector(ssl=False)
    timeout = aiohttp.ClientTimeout(total=_ANSWERS_WITHIN_S)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.get(f"https://127.0.0.1:{port}/metrics") as answer,
    ):
        answer.raise_for_status()
        text = await answer.text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def fill(port: int) -> Mapping[str, int]:
    """Return how many entries each store has that fills for minutes and then stands still, by its name in
    ENTRY_KB; none where the host does not answer.
    """
    levels = dict.fromkeys(ENTRY_KB, 0)
    try:
        samples = await _samples(port)
    except (aiohttp.ClientError, OSError):  # a TimeoutError is an OSError
        return {}
    for sample in samples:
        if sample.name == "berth_kept_entries":
            levels[sample.labels["store"]] = int(sample.value)
        elif sample.name == "scheduler_pending_pods" or (
            sample.name == "scheduler_cache_size" and sample.labels["type"] == "pods"
        ):
            levels["pods"] += int(sample.value)
    return levels


@dataclass(frozen=True, slots=True)
class Memory:
    """One sample of the host's memory. `kept`: entries of the stores in ENTRY_KB."""

    mb: float
    kept: Mapping[str, int]

    @property
    def besides_mb(self) -> float:
        """Memory without what these stores hold."""
        return self.mb - sum(ENTRY_KB[name] * count for name, count in self.kept.items()) / 1024


def growth_percent(memory: Sequence[Memory]) -> float:
    """Return how much the memory grew from the second third of the samples to the last, in per cent of the
    second, by medians.

    What the known bounded stores hold is left out: they fill for as long as ten minutes, which is no leak.
    """
    third = len(memory) // 3
    if not third:
        return 0.0
    second, last = memory[third : 2 * third], memory[2 * third :]
    grown_mb = statistics.median(one.besides_mb for one in last) - statistics.median(
        one.besides_mb for one in second
    )
    return 100 * grown_mb / statistics.median(one.mb for one in second)
