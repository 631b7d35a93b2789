"""Families and series -> the text of `/metrics`, a family at a time, so that no other task waits for all of
it.

Asked by `endpoints`. The text is prometheus-client's, families sorted by name as kube-scheduler has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


class Named(Protocol):
    """A family's name is all that is needed to sort it."""

    @property
    def name(self) -> str:
        """As on `/metrics`."""
        ...


class Source(Protocol):
    """Makes one family's part of the text."""

    @property
    def family(self) -> Named:
        """The text that it makes."""
        ...

    def collect(self) -> Metric | None:
        """The family, or None while it has no series."""
        ...


class Exposition:
    """Everything on `/metrics`, on a registry of its own."""

    def __init__(self, sources: Callable[[], Iterable[Source]], *, process: bool = True) -> None:
        """`process`: with memory, CPU and files of this process."""
        self._sources = sources
        self._process = CollectorRegistry()
        if process:
            ProcessCollector(registry=self._process)

    async def text(self) -> bytes:
        """All families that have a series. Others get their turn of the loop after each."""
        parts: list[bytes] = []
        for metric in self._metrics():
            parts.append(generate_latest(_One(metric)))
            await asyncio.sleep(0)
        return b"".join(parts)

    def _metrics(self) -> Iterator[Metric]:
        made: dict[str, Callable[[], Metric | None]] = {
            source.family.name: source.collect for source in self._sources()
        }
        for metric in self._process.collect():
            made[metric.name] = _Known(metric)
        for name in sorted(made):
            metric_or_none = made[name]()
            if metric_or_none is not None:
                yield metric_or_none


class _One(CollectorRegistry):
    """A registry of one family, as prometheus-client writes it as text."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """The one family."""
        return (self._metric,)


class _Known:
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def __call__(self) -> Metric:
        return self._metric
