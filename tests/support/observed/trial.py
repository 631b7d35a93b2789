"""The parts of a replay that differ between kinds of recordings: surroundings, observations, comparison.

`observability_trial` is for recordings of what users observe; `extender_trial.extender_trial` adds an
extender.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from berth_bench.versus.api import ApiClient
from support.observed.agreement import first_difference
from support.observed.masking import masked

Json = dict[str, Any]
PROBE_DOCUMENT: Final = """\
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: Probe
  inProcess: support.probe_plugin:Probe
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An empty API server, and the settings for a scheduler that uses it."""

    api: ApiClient
    audit_log: Path
    kubeconfig: Path
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSlices:
    """How long a step is observed. `shortest_s`: at least; `quiet_s`: after it was as recorded."""

    shortest_s: float = 2.5
    quiet_s: float = 1.0


class Trial(Protocol):
    """One scenario in its surroundings."""

    @property
    def configuration(self) -> str:
        """The scheduler's configuration file."""

    @property
    def more_documents(self) -> str:
        """Further documents of the configuration file, for berth."""

    @property
    def pace(self) -> LoopSlices:
        """How long a step is observed."""

    @property
    def mask(self) -> Callable[[Any], Any]:
        """Returns a masked copy of a JSON value."""

    async def begin_step(self, number: int) -> None:
        """Begin a step (from 1), before its operations."""

    async def seen(self, observation: Json, number: int) -> Json:
        """Return the observation of a step in the form of the recording."""

    def difference(
        self, number: int, seen: Json, *, retries_count: bool, unstable: frozenset[str]
    ) -> Json | None:
        """Return the first difference between what was recorded for a step and what was seen."""


Trials: TypeAlias = Callable[[Json, Stage], AbstractAsyncContextManager[Trial]]
"""Makes the surroundings of a recorded scenario, for the time of its replay."""


class _ObservabilityTrial:
    """A scenario without surroundings, compared as it is observed."""

    def __init__(self, record: Json) -> None:
        self._record = record
        self.configuration = str(record["schedulerConfig"])
        self.more_documents = PROBE_DOCUMENT if record.get("plugin") == "Probe" else ""
        self.pace = LoopSlices()
        self.mask: Callable[[Any], Any] = masked

    async def begin_step(self, number: int) -> None:
        """Do nothing: there are no surroundings."""

    async def seen(self, observation: Json, number: int) -> Json:
        """Return the observation as it is."""
        return observation

    def difference(
        self, number: int, seen: Json, *, retries_count: bool, unstable: frozenset[str]
    ) -> Json | None:
        """Return the first difference between what was recorded for a step and what was seen."""
        expected = self._record["expected"][number - 1]
        return first_difference(expected, seen, retries_count=retries_count, unstable=unstable)


@asynccontextmanager
async def observability_trial(record: Json, _stage: Stage) -> AsyncIterator[Trial]:
    """Yield the trial of a recording of what users observe."""
    yield _ObservabilityTrial(record)
