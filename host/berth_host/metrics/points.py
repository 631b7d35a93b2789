"""The durations of one profile's plugins: per extension point every time, per call in one cycle of ten.

`framework` writes them for every pod, so each observation is a look-up and a bisection. Participation is
counted per set of plugins, and split by plugin only when the metrics are read.

Source: kube-scheduler `framework/runtime/framework.go` and `metrics_recorder.go`, v1.37. Two differences:

- Filter is one call for all nodes, so a plugin counts once per attempt and not once per node.
- A plugin takes part also if its kept answer is used, without a call.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.status import Code, Status, Verdicts

from berth_host.metrics.series import Histograms, Labels, SeriesBy

SAMPLED_SHARE: Final = 0.1
_MOST_SETS: Final = 1024
_NAMES: Final = ("", *(point.kube_name for point in ExtensionPoint))
_POINT_OF_CALL: Final = {"NormalizeScore": "ScoreExtensionNormalize", "SimulateFilter": "Filter"}


class Named(Protocol):
    """A plugin."""

    @property
    def name(self) -> str:
        """The plugin's name in the profile."""
        ...


class CallObserver(Protocol):
    """Gets every call of a cycle."""

    def called(self, plugin: str, call: str, seconds: float, answer: object) -> None:
        """Take a call of `plugin` that took `seconds`. `answer` None: the call failed."""
        ...


class TakingPart:
    """Counts of the sets of plugins that took part at one extension point of one profile.

    A pod adds to one set. With `Counters`, each pod would add to a dozen plugins.
    """

    __slots__ = ("_counts", "_folded", "_last", "_point", "_profile")

    def __init__(self, point: str, profile: str) -> None:
        self._point = point
        self._profile = profile
        # By the identity of the tuple, which callers share between pods. The entry keeps the tuple alive, so
        # that no other tuple gets its identity.
        self._counts: dict[int, list[Any]] = {}
        self._last: list[Any] | None = None
        """The entry of the last attempt, which the next one mostly has, too."""
        self._folded: Counter[str] = Counter()

    def count(self, plugins: Sequence[Named]) -> None:
        """Count one attempt in which all of `plugins` took part."""
        entry = self._last
        if entry is not None and entry[0] is plugins:
            entry[1] += 1
            return
        entry = self._counts.get(id(plugins))
        if entry is None:
            if len(self._counts) >= _MOST_SETS:
                self._fold()
            entry = self._counts[id(plugins)] = [plugins, 0]
        entry[1] += 1
        self._last = entry

    def left_out(self, plugin: str) -> None:
        """Subtract one attempt of `plugin`, which was counted and then had nothing to do."""
        self._folded[plugin] -= 1

    def clear(self) -> None:
        """Drop all counts."""
        self._counts.clear()
        self._folded.clear()
        self._last = None

    def values(self) -> Iterator[tuple[Labels, float]]:
        """Yield the labels (extension point, plugin, profile), and the number of attempts."""
        self._fold()
        for plugin, count in self._folded.items():
            if count > 0:
                yield (self._point, plugin, self._profile), count

    def _fold(self) -> None:
        for plugins, count in self._counts.values():
            for plugin in plugins:
                self._folded[plugin.name] += count
        self._counts.clear()
        self._last = None


class CallSampler:
    """The observer of single calls of plugins, in the cycles that have one."""

    def __init__(self, family: Histograms) -> None:
        self._family = family

    def called(self, plugin: str, call: str, seconds: float, answer: object) -> None:
        """Count a call of `plugin` that took `seconds`.

        `call`: as in the contract. `answer` None: the call failed.
        """
        code = Code.ERROR if answer is None else code_of(answer)
        self._family.of(_POINT_OF_CALL.get(call, call), plugin, code.kube_name).observe(seconds)


class PointTimes:
    """The measurements of the plugins of one profile."""

    def __init__(self, times: Histograms, calls: Histograms, profile: str) -> None:
        self._times = times
        self._profile = profile
        self.at = tuple(self.timer(name) for name in _NAMES)
        """The durations at each point, by the point's number in the contract."""
        self.unreserve = self.timer("Unreserve")
        self.pre_bind_pre_flight = self.timer("PreBindPreFlight")
        self.asked_pre_filter = TakingPart(ExtensionPoint.PRE_FILTER.kube_name, profile)
        self.asked_filter = TakingPart(ExtensionPoint.FILTER.kube_name, profile)
        self.asked_pre_score = TakingPart(ExtensionPoint.PRE_SCORE.kube_name, profile)
        self.asked_score = TakingPart(ExtensionPoint.SCORE.kube_name, profile)
        self._sampler = CallSampler(calls)

    def timer(self, point: str) -> SeriesBy[Code]:
        """Return the durations of one extension point, by the code of its outcome."""
        return self._times.by(lambda code: (point, self._profile, code.kube_name))

    @property
    def taking_part(self) -> tuple[TakingPart, ...]:
        """The four points at which participation is counted."""
        return self.asked_pre_filter, self.asked_filter, self.asked_pre_score, self.asked_score

    def sampler(self) -> CallSampler | None:
        """Return the observer of a new cycle's calls, in one cycle of ten by chance; None otherwise."""
        return self._sampler if random.random() < SAMPLED_SHARE else None


def code_of(answer: object) -> Code:
    """Return the code of a plugin's answer; for verdicts, the code of the first rejection, if any."""
    if isinstance(answer, Status):
        return answer.code
    verdicts = answer if isinstance(answer, Verdicts) else getattr(answer, "verdicts", None)
    if isinstance(verdicts, Verdicts):
        if verdicts.all_passed:
            return Code.SUCCESS
        return next((one.code for one in verdicts.statuses if not one.is_success), Code.SUCCESS)
    status = getattr(answer, "status", None)
    return status.code if isinstance(status, Status) else Code.SUCCESS
