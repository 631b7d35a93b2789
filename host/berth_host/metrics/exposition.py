"""Families and series -> the text of `/metrics`. Other tasks of the loop run after each family.

`endpoints` serves the text. prometheus-client writes it. Families are sorted by name, as in kube-scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

# The first scrape imports it, and not the start.
if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_OPEN_METRICS_TYPE: Final = "application/openmetrics-text"
OPEN_METRICS: Final = f"{_OPEN_METRICS_TYPE}; version=1.0.0; charset=utf-8; escaping=underscores"
_END: Final = b"# EOF\n"


def wants_open_metrics(accept: str) -> bool:
    """Return True if an Accept header asks for OpenMetrics at least as much as for any other format.

    A header that accepts anything gets plain text. Source: RFC 9110, section 12.5.1.
    """
    wanted = other = 0.0
    for media_type in accept.lower().split(","):
        name, *parameters = (part.strip() for part in media_type.split(";"))
        given = dict(part.partition("=")[::2] for part in parameters)
        try:
            quality = float(given.get("q", "1"))
        except ValueError:
            continue
        if name == _OPEN_METRICS_TYPE:
            wanted = max(wanted, quality)
        else:
            other = max(other, quality)
    return wanted > 0 and wanted >= other


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
        self._has_process = process
        self._process: CollectorRegistry | None = None

    async def open_metrics(self) -> bytes:
        """Return the same as `text` in OpenMetrics' format, which has exemplars."""
        from prometheus_client.openmetrics.exposition import generate_latest

        write: Any = generate_latest
        parts: list[bytes] = []
        for metric in self._metrics():
            parts.append(write(_One(metric)).removesuffix(_END))
            await asyncio.sleep(0)
        return b"".join((*parts, _END))

    async def text(self) -> bytes:
        """Return the text of all families that have a series. Other tasks run after each family."""
        from prometheus_client import generate_latest

        parts: list[bytes] = []
        for metric in self._metrics():
            parts.append(generate_latest(cast("CollectorRegistry", _One(metric))))
            await asyncio.sleep(0)
        return b"".join(parts)

    def _metrics(self) -> Iterator[Metric]:
        made: dict[str, Callable[[], Metric | None]] = {
            source.family.name: source.collect for source in self._sources()
        }
        for metric in self._of_process():
            made[metric.name] = _Known(metric)
        for name in sorted(made):
            metric_or_none = made[name]()
            if metric_or_none is not None:
                yield metric_or_none

    def _of_process(self) -> Iterable[Metric]:
        if not self._has_process:
            return ()
        if self._process is None:
            from prometheus_client import CollectorRegistry, ProcessCollector

            self._process = CollectorRegistry()
            ProcessCollector(registry=self._process)
        return self._process.collect()


class _One:
    """A registry of one family, as prometheus-client writes the text of registries only."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return the one family."""
        return (self._metric,)


class _Known:
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def __call__(self) -> Metric:
        return self._metric
