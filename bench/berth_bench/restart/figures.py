"""Medians of starts, and ratios to them; the shape of `-o json`. Made by `ground`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a scheduler, from the start of its process until its first binding is seen.

    `cpu_s`: of the process. `servers_cpu_s`: of etcd and the API server. `memory_mb`: the maximum. `load`:
    load average of the machine over the last minute.
    """

    cpu_s: float
    took_s: float
    memory_mb: float
    servers_cpu_s: float
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver:
    """One take-over by a standby: from the Lease's new holder until the first binding is seen.

    `cpu_s`: of the standby, from the end of the leader until then.
    """

    took_s: float
    cpu_s: float
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """All starts of one contender, and the take-overs by its standbys, if leaders were killed."""

    contender: str
    starts: tuple[Start, ...]
    take_overs: tuple[TakeOver, ...] = ()

    @property
    def median(self) -> Start:
        """The median of each figure separately."""
        names = [one.name for one in fields(Start)]
        return Start(
            **{name: statistics.median(getattr(start, name) for start in self.starts) for name in names}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """The contenders on one cluster, in order: the first is berth. `pod_bytes`: of a running pod's JSON."""

    nodes: int
    running: int
    pod_bytes: int
    contenders: tuple[Starts, ...]

    def ratios(self) -> Sequence[tuple[str, dict[str, float]]]:
        """Return the first contender's medians divided by those of each other one, by that one's name."""
        own = asdict(self.contenders[0].median)
        found = []
        for other in self.contenders[1:]:
            theirs = asdict(other.median)
            ratios = {name: own[name] / theirs[name] for name in own if name != "load" and theirs[name]}
            found.append((other.contender, ratios))
        return found

    def as_json(self, command: str) -> dict[str, Any]:
        """Return one line of `-o json`. `command`: that makes it again."""
        return {
            "nodes": self.nodes,
            "running": self.running,
            "pod_bytes": self.pod_bytes,
            "contenders": [
                {
                    "contender": one.contender,
                    "median": _rounded(asdict(one.median)),
                    "starts": [_rounded(asdict(start)) for start in one.starts],
                    "take_overs": [_rounded(asdict(each)) for each in one.take_overs],
                }
                for one in self.contenders
            ],
            "ratios": [{"over": name, **_rounded(ratios)} for name, ratios in self.ratios()],
            "command": command,
        }


def _rounded(record: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in record.items()}
