"""A plugin method's answer -> the result type of its point. `plugin_runtime` uses it.

Answers are read as `extension_points` documents: a bare Status stands for the point's result, and None means
success where the plugin need not decide. Any other answer raises a PluginAnswerError that names plugin and
method. So a mistake such as `return True` is found at once, for in-process and served plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from berth_sdk.errors import PluginAnswerError, ScoreRefusedError
from berth_sdk.kept.row_contents import Alike
from berth_sdk.pod_group import Assignment, Placement
from berth_sdk.results import (
    BindResult,
    FilterResult,
    LiveReservation,
    PermitResult,
    PodGroupPostFilterResult,
    PostFilterResult,
    PreBindResult,
    PreFilterResult,
    PreFlightResult,
    ReserveResult,
)
from berth_sdk.sort_keys import MAX_KEY_BYTES
from berth_sdk.status import SUCCESS, Status, Verdicts

INT64: Final = np.dtype(np.int64)
R = TypeVar("R", PermitResult, PreBindResult, ReserveResult, BindResult)


class Answers:
    """The readers of one plugin's answers. The errors name the plugin."""

    __slots__ = ("_plugin",)

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    def status(self, method: str, answer: Any) -> Status:
        """Return the answer as a Status; None means success."""
        if answer is None:
            return SUCCESS
        if isinstance(answer, Status):
            return answer
        raise self._wrong(method, answer, "a Status")

    def pre_filter(self, answer: Any, count: int) -> PreFilterResult:
        """Return the answer as a PreFilterResult for `count` candidates."""
        if not isinstance(answer, PreFilterResult):
            return PreFilterResult(self.status("pre_filter", answer))
        if answer.early_filter is not None:
            self._check_count("pre_filter", len(answer.early_filter), count)
        if answer.early_scores is None:
            return answer
        return replace(answer, early_scores=self.scores("pre_filter", answer.early_scores, count))

    def filter_nodes(self, answer: Any, count: int) -> FilterResult:
        """Return the answer as a FilterResult for `count` candidates."""
        if isinstance(answer, FilterResult):
            self._check_count("filter_nodes", len(answer.verdicts), count)
            if answer.early_scores is None:
                return answer
            scores = self.scores("filter_nodes", answer.early_scores, count)
            return FilterResult(answer.verdicts, scores, answer.skip_score)
        return FilterResult(self.verdicts("filter_nodes", answer, count))

    def verdicts(self, method: str, answer: Any, count: int) -> Verdicts:
        """Return the answer as Verdicts for `count` rows; a bare Status counts for all rows."""
        if isinstance(answer, Verdicts):
            self._check_count(method, len(answer), count)
            return answer
        if answer is None or isinstance(answer, Status):
            return Verdicts.all(count, self.status(method, answer))
        raise self._wrong(method, answer, "Verdicts or a Status")

    def post_filter(self, answer: Any) -> PostFilterResult:
        """Return the answer as a PostFilterResult; None means that the plugin cannot make room."""
        if isinstance(answer, PostFilterResult):
            return answer
        if answer is None:
            return PostFilterResult(Status.unschedulable())
        return PostFilterResult(self.status("post_filter", answer))

    def pre_flight(self, answer: Any) -> PreFlightResult:
        """Return the answer as a PreFlightResult; None means success, so PreBind is called."""
        if isinstance(answer, PreFlightResult):
            return answer
        return PreFlightResult(self.status("pre_bind_pre_flight", answer))

    def due(self, method: str, result_type: type[R]) -> Callable[[Any], R | None]:
        """Return the reader of answers at a point where the plugin must decide; None stays None."""

        def read(answer: Any) -> R | None:
            if answer is None or isinstance(answer, result_type):
                return answer
            if isinstance(answer, Status):
                return result_type(answer)
            raise self._wrong(method, answer, f"a Status or a {result_type.__name__}")

        return read

    def reserve(self, answer: Any, *, pre_binds: bool) -> ReserveResult | None:
        """Return the answer as a ReserveResult; None stays None.

        `pre_binds`: the plugin has PreBind, so the result may have an early answer to PreBind.
        """
        result = answer if type(answer) is ReserveResult else self.due("reserve", ReserveResult)(answer)
        if result is None or (result.pre_bind is None and result.pre_flight is None):
            return result
        if not pre_binds:
            raise PluginAnswerError(
                f"{self._plugin}.reserve answered PreBind as well and has no method `pre_bind`:"
                " write it, it is called for further rounds and by older hosts"
            )
        early: tuple[tuple[str, Any, type], ...] = (
            ("pre_bind", result.pre_bind, PreBindResult),
            ("pre_flight", result.pre_flight, PreFlightResult),
        )
        for name, told, due in early:
            if told is not None and not isinstance(told, due):
                raise PluginAnswerError(
                    f"{self._plugin}.reserve answered a ReserveResult whose {name} is {told!r:.80}:"
                    f" answer a {due.__name__} there, or None"
                )
        return result

    def refused(self, answer: Any, live: Sequence[LiveReservation]) -> frozenset[str]:
        """Return the ids of the cycles that `reconcile` returned, all of them in `live`; None: no cycle."""
        if answer is None:
            return frozenset()
        if not isinstance(answer, Sequence) or not all(isinstance(item, LiveReservation) for item in answer):
            raise self._wrong("reconcile", answer, "None or the LiveReservations that it cannot take up")
        refused = frozenset(item.state.cycle_id for item in answer)
        if not refused <= {item.state.cycle_id for item in live}:
            raise PluginAnswerError(
                f"{self._plugin}.reconcile answered a reservation that it was not asked about:"
                " answer some of the list that it got"
            )
        return refused

    def placements(self, method: str, answer: Any) -> tuple[Placement, ...]:
        """Return the answer as placements."""
        if isinstance(answer, Sequence) and all(isinstance(item, Placement) for item in answer):
            return tuple(answer)
        raise self._wrong(method, answer, "a Status or a list of Placement")

    def pod_group_post_filter(self, answer: Any) -> PodGroupPostFilterResult:
        """Return the answer as a PodGroupPostFilterResult; None means that the plugin cannot make room."""
        if answer is None:
            return PodGroupPostFilterResult(Status.unschedulable())
        if not isinstance(answer, PodGroupPostFilterResult):
            return PodGroupPostFilterResult(self.status("pod_group_post_filter", answer))
        if not all(isinstance(item, Assignment) for item in answer.nominations):
            raise self._wrong("pod_group_post_filter", answer, "nominations that are Assignments")
        return answer

    def scores(self, method: str, answer: Any, count: int, rows: str = "nodes") -> NDArray[np.int64]:
        """Return the answer as int64[count]. Fractions are an error. Raises ScoreRefusedError for a failed
        Status. `rows`: the word for the rows in errors.
        """
        if not isinstance(answer, np.ndarray):
            _check_failed(answer)
            if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes)):
                raise self._wrong(method, answer, f"an array of {count} integers")
            answer = np.asarray(answer, dtype=None if len(answer) else np.int64)
        if answer.dtype is INT64 and answer.shape == (count,):
            plain: NDArray[np.int64] = answer
            return plain
        if answer.ndim != 1 or answer.dtype.kind not in "iu":
            raise PluginAnswerError(
                f"{self._plugin}.{method} answered an array of {answer.dtype} with {answer.ndim} dimensions:"
                " scores are one row of integers; round them as the formula demands"
            )
        self._check_count(method, len(answer), count, rows)
        scores: NDArray[np.int64] = answer.astype(np.int64, copy=False)
        return scores

    def score(self, answer: Any, method: str = "score") -> int:
        """Return the answer as one score. Raises ScoreRefusedError for a failed Status."""
        if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
            return int(answer)
        _check_failed(answer)
        raise self._wrong(method, answer, "an integer; round it as the formula demands")

    def sort_key(self, answer: Any) -> bytes:
        """Return the answer as a key of at most 256 bytes."""
        if not isinstance(answer, bytes):
            raise self._wrong("sort_key", answer, "bytes, as berth_sdk.sort_keys makes them")
        if len(answer) > MAX_KEY_BYTES:
            raise PluginAnswerError(
                f"{self._plugin}.sort_key answered {len(answer)} bytes, {MAX_KEY_BYTES} is the limit:"
                " build it with berth_sdk.sort_keys.join"
            )
        return answer

    def flag(self, method: str, answer: Any) -> bool:
        """Return the answer as a bool."""
        if isinstance(answer, (bool, np.bool_)):
            return bool(answer)
        raise self._wrong(method, answer, "True or False")

    def _check_count(self, method: str, got: int, want: int, rows: str = "nodes") -> None:
        if got != want:
            each = "row of the table" if rows == "nodes" else "placement"
            raise PluginAnswerError(
                f"{self._plugin}.{method} answered for {got} {rows} and was asked about {want}:"
                f" answer one entry per {each}"
            )

    def _wrong(self, method: str, answer: Any, wanted: str) -> PluginAnswerError:
        return PluginAnswerError(
            f"{self._plugin}.{method} answered {type(answer).__name__} {answer!r:.80}: answer {wanted}"
        )


def _check_failed(answer: Any) -> None:
    """Raise ScoreRefusedError for a failed Status in place of scores."""
    if isinstance(answer, Status) and not answer.is_success:
        raise ScoreRefusedError(answer.reasons or (answer.code.kube_name,))


def grouped(statuses: Sequence[Status], alike: Alike | None) -> Verdicts:
    """Return the same as `Verdicts.of`, and hash each status object once. `alike`: the rows in groups, a
    status each; None: a status for each row.
    """
    seen: dict[Status, int] = {SUCCESS: 0}
    by_id: dict[int, int] = {}
    groups = np.zeros(len(statuses), dtype=np.int32)
    for row, status in enumerate(statuses):
        group = by_id.get(id(status))
        if group is None:
            group = by_id[id(status)] = seen.setdefault(status, len(seen))
        groups[row] = group
    return Verdicts(groups if alike is None else groups.take(alike.group), tuple(seen))
