"""Compares an observation with a recording: returns the first difference, or None.

The comparison covers what the recordings define: `pods` by name, `events` as a multiset, and `writes` in
order for each object. The order of writes to different objects is not defined. The number of retries of a pod
within an observation is not defined either: with `retries_count` False, repetitions do not count. In the
parts that differed between two recordings (`secondRun`), one history must be the beginning of the other. In
these parts a failed attempt may or may not clear the nomination together with its condition: kube-scheduler
does so only if its informer has shown the nomination by then, which is chance.

berth adds to kube-scheduler's writes only the label `berth.io/scheduler` of its Lease, by which `kubectl
berth` finds the Lease. `_without_own_label` removes this label before the comparison.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from berth_host.model.lease_record import LABEL

Json = dict[str, Any]
_MISSING: Final = "<nothing>"
_TAKEN_BACK: Final = {"nominatedNodeName": None}


def first_difference(
    expected: Json, actual: Json, *, retries_count: bool = True, unstable: frozenset[str] = frozenset()
) -> Json | None:
    """Return the first difference, None if the observation agrees. `unstable`: parts that two recordings
    differ in.
    """
    return (
        _pods(expected["pods"], actual["pods"], "pods" in unstable)
        or _events(expected["events"], actual["events"], retries_count and "events" not in unstable)
        or _writes(expected["writes"], actual["writes"], retries_count, "writes" in unstable)
    )


def unstable_parts(second_run: Any, step: int) -> frozenset[str]:
    """Return the parts of one step (from 1) in which the second recording differed. `second_run`: as
    recorded.
    """
    if isinstance(second_run, str):
        return frozenset()
    return frozenset(str(item["part"]) for item in second_run if item["step"] == step)


def _pods(expected: Json, actual: Json, unstable: bool) -> Json | None:
    for name in sorted(expected.keys() | actual.keys()):
        want, have = expected.get(name), actual.get(name)
        if want is None or have is None or _pod(want, unstable) != _pod(have, unstable):
            return _difference("pods", name, want, have)
    return None


def _pod(pod: Json, unstable: bool) -> Json:
    left_out = {"nominatedNodeName"} if unstable else set()
    shown = {key: value for key, value in pod.items() if key not in left_out}
    shown["conditions"] = pod.get("conditions") or []
    return shown


def _events(expected: list[Json], actual: list[Json], retries_count: bool) -> Json | None:
    return _multiset("events", "", expected, actual, retries_count)


def _writes(expected: list[Json], actual: list[Json], retries_count: bool, unstable: bool) -> Json | None:
    want, have = _by_object(expected), _by_object(map(_without_own_label, actual))
    for key in sorted(want.keys() | have.keys()):
        first, second = want.get(key, []), have.get(key, [])
        if key[0] == "events":
            difference = _multiset("writes", "/".join(key), first, second, retries_count)
        else:
            difference = _sequence("/".join(key), first, second, retries_count, unstable)
        if difference is not None:
            return difference
    return None


def _without_own_label(write: Json) -> Json:
    """Return a write to a Lease without berth's own label; any other write as it is."""
    labels = (write.get("body", {}).get("metadata") or {}).get("labels") or {}
    if write["resource"] != "leases" or LABEL not in labels:
        return write
    metadata = dict(write["body"]["metadata"])
    others = {key: value for key, value in labels.items() if key != LABEL}
    del metadata["labels"]
    if others:
        metadata["labels"] = others
    return {**write, "body": {**write["body"], "metadata": metadata}}


def _by_object(writes: Iterable[Json]) -> dict[tuple[str, str, str], list[Json]]:
    """Return the writes by object, in order."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for write in writes:
        key = (write["resource"], write.get("namespace", ""), write.get("name", ""))
        groups.setdefault(key, []).append(write)
    return groups


def _sequence(
    what: str, expected: list[Json], actual: list[Json], retries_count: bool, unstable: bool
) -> Json | None:
    want, have = expected, actual
    if not retries_count or unstable:
        want, have = _once_each(expected), _once_each(actual)
    if unstable:
        want, have = [_without_taking_back(one) for one in want], [_without_taking_back(one) for one in have]
        length = min(len(want), len(have))
        want, have = want[:length], have[:length]
    for position in range(max(len(want), len(have))):
        first = want[position] if position < len(want) else None
        second = have[position] if position < len(have) else None
        if first is None or second is None or _text(first) != _text(second):
            return {**_difference("writes", what, first, second), "position": position}
    return None


def _once_each(writes: list[Json]) -> list[Json]:
    """Return the distinct writes in the order of their first time.

    A failed attempt clears the pod's nomination together with its condition. Later attempts with the same
    condition clear only the nomination, which counts as a repetition, too.
    """
    seen: dict[str, Json] = {}
    taken_back = False
    for write in writes:
        status = write.get("body", {}).get("status", {})
        if taken_back and status == _TAKEN_BACK:
            continue
        taken_back |= status.items() >= _TAKEN_BACK.items()
        seen.setdefault(_text(write), write)
    return list(seen.values())


def _without_taking_back(write: Json) -> Json:
    """Return the write of a condition without the nomination that it clears; any other write as it is."""
    status = write.get("body", {}).get("status", {})
    if "conditions" not in status or not status.items() >= _TAKEN_BACK.items():
        return write
    left = {key: value for key, value in status.items() if key not in _TAKEN_BACK}
    return {**write, "body": {**write["body"], "status": left}}


def _multiset(
    part: str, what: str, expected: list[Json], actual: list[Json], retries_count: bool
) -> Json | None:
    want, have = Counter(map(_text, expected)), Counter(map(_text, actual))
    if not retries_count:
        want, have = Counter(want.keys()), Counter(have.keys())
    if want == have:
        return None
    lacking, extra = want - have, have - want
    first = json.loads(min(lacking)) if lacking else None
    second = json.loads(min(extra)) if extra else None
    return _difference(part, what, first, second)


def _difference(part: str, what: str, expected: Any, actual: Any) -> Json:
    return {
        "part": part,
        "object": what,
        "expected": _MISSING if expected is None else expected,
        "actual": _MISSING if actual is None else actual,
    }


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)
