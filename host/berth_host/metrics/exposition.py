"""Families and series -> the text of `/metrics`. Other tasks of the loop run after each family.

`endpoints` serves the text. prometheus-client writes it. Families are sorted by name, as in kube-scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


class Named(Protocol):
    """A family, of which only the name is read."""

    @property
    def name(self) -> str:
        """The name, as on `/metrics`."""
        ...


class Source(Protocol):
    """The series of one family."""

    @property
    def family(self) -> Named:
        """The family of the series."""
        ...

    def collect(self) -> Metric | None:
        """Return the family, or None while it has no series."""
        ...


class Exposition:
    """Everything on `/metrics`; prometheus-client's global registry is not used."""

    def __init__(self, sources: Callable[[], Iterable[Source]], *, process: bool = True) -> None:
        """Read `sources` at every request. `process`: add memory, CPU and files of this process."""
        self._sources = sources
        self._process = CollectorRegistry()
        if process:
            ProcessCollector(registry=self._process)

    async def text(self) -> bytes:
        """Return the text of all families that have a series. Other tasks run after each family."""
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
    """A registry of one family, as prometheus-client writes the text of registries only."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return the one family."""
        return (self._metric,)


class _Known:
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def __call__(self) -> Metric:
        return self._metric
