"""The calls of a scheduler to its extenders, compared with the recorded ones.

Not defined, so compared without: the order of nodes in a request, the number of repeated attempts, and the
order in which several prioritizers are called. A bind call is made beside the cycles of other pods, so its
place counts only among the calls about its own pod.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

Json = dict[str, Any]
_MISSING: Final = "<nothing>"
_CYCLES: Final = "scheduling cycles"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what was asked and how it was answered, masked, in the form of the recordings."""

    request: Json
    response: Json
    side_effect: Any = None

    @property
    def path(self) -> str:
        """The whole path of the URL."""
        return str(self.request["path"])

    @property
    def pod(self) -> str:
        """The namespace and name of the pod that the call is about; empty if the body names none."""
        body = self.request["body"]
        if not isinstance(body, dict):
            return ""
        metadata = (body.get("Pod") or {}).get("metadata") or {}
        name = body.get("PodName") or metadata.get("name", "")
        return f"{body.get('PodNamespace') or metadata.get('namespace', '')}/{name}" if name else ""

    @property
    def request_text(self) -> str:
        """A text that two equal requests have in common; the order of nodes makes no difference."""
        return json.dumps(self.request, sort_keys=True)

    @property
    def question(self) -> str:
        """A text that two requests have in common if they differ only in the status of their pod."""
        body = self.request["body"]
        if not isinstance(body, dict) or not isinstance(body.get("Pod"), dict):
            return self.request_text
        pod = {key: item for key, item in body["Pod"].items() if key != "status"}
        return json.dumps({**self.request, "body": {**body, "Pod": pod}}, sort_keys=True)

    @property
    def attempt(self) -> str:
        """A text that a call and its repetition in a later attempt have in common: question and answer."""
        return json.dumps([self.question, self.response, self.side_effect], sort_keys=True)

    def equals(self, other: Call) -> bool:
        """Return True if both requests are equal."""
        return self.request_text == other.request_text

    def asks_the_same(self, other: Call) -> bool:
        """Return True if both requests differ only in the status of their pod."""
        return self.question == other.question

    def on_the_path_of(self, other: Call) -> bool:
        """Return True if both requests have the same path."""
        return self.path == other.path


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of the calls whose order is not wholly defined."""

    prioritize: Collection[str] = ()
    bind: Collection[str] = ()


def call_of(recorded: Json) -> Call:
    """Return a recorded or masked call, with the nodes of its request in order of their names."""
    request = dict(recorded["request"])
    if isinstance(request.get("body"), dict):
        request["body"] = _in_order(request["body"])
    return Call(request, recorded.get("response") or {}, recorded.get("sideEffect"))


def _in_order(body: Json) -> Json:
    result = dict(body)
    nodes, names = body.get("Nodes"), body.get("NodeNames")
    if isinstance(nodes, dict) and isinstance(nodes.get("items"), list):
        result["Nodes"] = {**nodes, "items": sorted(nodes["items"], key=_name)}
    if isinstance(names, list):
        result["NodeNames"] = sorted(names, key=str)
    return result


def _name(item: Any) -> str:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return str((metadata or {}).get("name", ""))


def calls_difference(
    expected: Sequence[Call],
    actual: Sequence[Call],
    paths: Paths,
    *,
    retries_count: bool = True,
    unstable: bool = False,
    earlier: Iterable[Call] = (),
) -> Json | None:
    """Return the first difference between two histories, None if they agree.

    `retries_count` False: repetitions of a call count once. `earlier`: recorded calls of earlier steps,
    which may be repeated, too. `unstable`: two recordings differed, so one history must be the beginning of
    the other.
    """
    loose = unstable or not retries_count
    if loose:
        wanted, before = {call.attempt for call in expected}, {call.attempt for call in earlier}
        actual = [call for call in actual if call.attempt in wanted or call.attempt not in before]
        expected, actual, difference = _once_each(expected, actual)
        if difference is not None:
            return difference
    want, have = _histories(expected, paths), _histories(actual, paths)
    for key in sorted(want.keys() | have.keys()):
        difference = _sequence(key, want.get(key, []), have.get(key, []), loose=loose, unstable=unstable)
        if difference is not None:
            return difference
    return None


def _once_each(
    expected: Sequence[Call], actual: Sequence[Call]
) -> tuple[list[Call], list[Call], Json | None]:
    """Return both histories without repeated attempts, and the first difference within these.

    The status of the pod may differ from one attempt to the next. As many attempts as both histories have
    must have the same.
    """
    want, have = _attempts(expected), _attempts(actual)
    for key, calls in want.items():
        for first, second in zip(calls, have.get(key, []), strict=False):
            if not first.equals(second):
                return [], [], _difference(first, second)
    return [calls[0] for calls in want.values()], [calls[0] for calls in have.values()], None


def _attempts(calls: Sequence[Call]) -> dict[str, list[Call]]:
    """Return the different requests of each attempt, in order of their first time."""
    attempts: dict[str, dict[str, Call]] = {}
    for call in calls:
        attempts.setdefault(call.attempt, {}).setdefault(call.request_text, call)
    return {key: list(requests.values()) for key, requests in attempts.items()}


def _histories(calls: Sequence[Call], paths: Paths) -> dict[str, list[Call]]:
    """Return the sequences whose order is defined: the scheduling cycles, and the calls about each pod."""
    histories: dict[str, list[Call]] = {}
    for (prioritizes, _), group in groupby(calls, lambda call: (call.path in paths.prioritize, call.pod)):
        for call in sorted(group, key=lambda call: call.path if prioritizes else ""):
            if call.path not in paths.bind:
                histories.setdefault(_CYCLES, []).append(call)
            histories.setdefault(f"pod {call.pod}", []).append(call)
    return histories


def _sequence(
    what: str, expected: Sequence[Call], actual: Sequence[Call], *, loose: bool, unstable: bool
) -> Json | None:
    """Return the first difference of two sequences. Repeated attempts (`loose`) were compared before."""
    length = (min if unstable else max)(len(expected), len(actual))
    for position in range(length):
        first = expected[position] if position < len(expected) else None
        second = actual[position] if position < len(actual) else None
        same = first is not None and second is not None
        if same and first is not None and second is not None:
            same = first.asks_the_same(second) if loose else first.equals(second)
        if not same:
            return {**_difference(first, second), "order": what, "position": position}
    return None


def _difference(expected: Call | None, actual: Call | None) -> Json:
    call = expected or actual
    result = {"part": "calls", "object": "" if call is None else f"{call.path} of {call.pod}"}
    if expected is None or actual is None:
        return {
            **result,
            "expected": _MISSING if expected is None else expected.request,
            "actual": _MISSING if actual is None else actual.request,
        }
    field, want, have = first_field(expected.request, actual.request)
    return {**result, "field": field, "expected": want, "actual": have}


def first_field(expected: Any, actual: Any, path: str = "") -> tuple[str, Any, Any]:
    """Return the path of the first field that differs between two JSON values, and both values of it."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            want, have = expected.get(key, _MISSING), actual.get(key, _MISSING)
            if want != have:
                return first_field(want, have, f"{path}.{key}" if path else key)
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for place, (want, have) in enumerate(zip(expected, actual, strict=True)):
            if want != have:
                return first_field(want, have, f"{path}[{place}]")
    return path, expected, actual
