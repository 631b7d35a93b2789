"""Measurements of the host: its own metrics, and the process figures of Linux.

Called by `hosts`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from berth_bench.soak.descriptors import descriptors

_ANSWERS_WITHIN_S: Final = 10.0
HEAP_FIGURES: Final = ("objects", "blocks", "malloced_bytes")
STORES: Final = ("events", "attempts", "pods")
"""The bounded stores that fill for minutes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading. `tasks` of the event loop, by coroutine; `reservations` of plugins, alive or not undone;
    `assumed` pods in the cache; `waiting` pods in the queue; `open`: descriptors by name.
    """

    tasks: Mapping[str, int]
    reservations: int
    assumed: int
    waiting: int
    open: Mapping[str, int]

    @property
    def task_count(self) -> int:
        """The number of tasks of all kinds."""
        return sum(self.tasks.values())

    @property
    def fds(self) -> int:
        """The number of open descriptors."""
        return sum(self.open.values())

    def is_within(self, other: Reading) -> bool:
        """Return True if no figure that must return to its old value is above that of `other`."""
        held = self.reservations + self.assumed
        return not held and self.task_count <= other.task_count and self.fds <= other.fds


def typical(readings: Sequence[Reading]) -> Reading:
    """Return the median of each figure. A single reading may include an event in flight, which is one task
    more, or a probe, during which its keeper waits in one task instead of two.
    """
    return Reading(
        tasks=_middle(readings, lambda one: one.task_count).tasks,
        reservations=_middle(readings, lambda one: one.reservations).reservations,
        assumed=_middle(readings, lambda one: one.assumed).assumed,
        waiting=_middle(readings, lambda one: one.waiting).waiting,
        open=_middle(readings, lambda one: one.fds).open,
    )


def _middle(readings: Sequence[Reading], figure: Callable[[Reading], int]) -> Reading:
    """Return the median reading by this figure; of two, the lower one."""
    return sorted(readings, key=figure)[(len(readings) - 1) // 2]


async def read(port: int, pid: int) -> Reading:
    """Read the host's figures. Raises aiohttp.ClientError and OSError if the host does not answer or has
    ended.
    """
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
    """Return how many calls of a plugin failed in one of these ways so far. Raises as `read` does."""
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
    async with _session() as session, session.get(f"{_url(port)}/metrics") as answer:
        answer.raise_for_status()
        text = await answer.text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def fill(port: int) -> Mapping[str, int]:
    """Return the number of entries of each bounded store that fills for minutes, by its name in STORES;
    empty if the host does not answer.
    """
    levels = dict.fromkeys(STORES, 0)
    try:
        samples = await _samples(port)
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return {}
    for sample in samples:
        if sample.name == "berth_kept_entries":
            levels[sample.labels["store"]] = int(sample.value)
        elif sample.name == "scheduler_pending_pods" or (
            sample.name == "scheduler_cache_size" and sample.labels["type"] == "pods"
        ):
            levels["pods"] += int(sample.value)
    return levels


async def heap(port: int) -> tuple[Mapping[str, float], Mapping[str, int]] | None:
    """Return the host's figures by name (`objects`, `blocks`, `malloced_bytes`) after a full collection, and
    its objects by type; None if the host does not answer.
    """
    try:
        async with _session() as session, session.get(f"{_url(port)}/debug/pprof/heap?gc=1") as answer:
            answer.raise_for_status()
            text = await answer.text()
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return None
    counts = {name: int(count) for name, _, count in (line.rpartition(" ") for line in text.splitlines())}
    return {name: counts.pop(name) for name in HEAP_FIGURES}, counts


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_ANSWERS_WITHIN_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=timeout)


def _url(port: int) -> str:
    return f"https://127.0.0.1:{port}"
