"""The metrics of connections that others open to the process. `listening.connections` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from berth_host.metrics import families
from berth_host.metrics.series import Counters, Labels, Readings


class LeavesOut(Protocol):
    """A limit on log lines (`model.sparing_lines`)."""

    left_out_count: int


class ConnectionMetrics:
    """The series of all ports of the process. `events`: by port and event. `refused`: by port and reason."""

    def __init__(self) -> None:
        self.events = Counters(families.CONNECTION_EVENTS)
        self.refused = Counters(families.REQUESTS_REFUSED)
        self._phases: dict[str, Callable[[], Mapping[str, int]]] = {}
        self._lines: dict[str, list[LeavesOut]] = {}
        self._open = Readings(families.CONNECTIONS, self._of_phases)
        self._left_out = Readings(families.LOG_LINES_LEFT_OUT, self._of_lines)

    def show(self, port: str, phases: Callable[[], Mapping[str, int]], *lines: LeavesOut) -> None:
        """Show the connections of a port by phase, and the log lines that were left out."""
        self._phases[port] = phases
        self._lines[port] = list(lines)

    def show_lines(self, port: str, lines: LeavesOut) -> None:
        """Show further log lines of a port that were left out."""
        self._lines.setdefault(port, []).append(lines)

    @property
    def sources(self) -> Iterable[Counters | Readings]:
        """All families."""
        return self._open, self.events, self.refused, self._left_out

    def _of_phases(self) -> Iterator[tuple[Labels, float]]:
        for port, phases in self._phases.items():
            for phase, number in phases().items():
                yield (port, phase), number

    def _of_lines(self) -> Iterator[tuple[Labels, float]]:
        for port, lines in self._lines.items():
            yield (port,), sum(one.left_out_count for one in lines)
