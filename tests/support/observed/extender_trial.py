"""A recorded scenario with an HTTP extender: its script, its observations, and their comparison."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from support.observed.agreement import first_difference
from support.observed.extender_calls import Call, Paths, call_of, calls_difference
from support.observed.masking import ADDRESS, as_recorded
from support.observed.scripted_extender import Script, ScriptedExtender, side_effect
from support.observed.trial import LoopSlices, Stage, Trial

Json = dict[str, Any]
_PLACE: Final = re.compile(f"(?:(?P<scheme>https?)://)?{ADDRESS}")
_LASTS: Final = re.compile(r"(?P<count>\d+(?:\.\d+)?) ?(?P<unit>ms|s)\b")
_REFUSED: Final = re.compile(r"connection refused|\bnothing listens\b|\bnot listening\b")
_NO_TLS: Final = "server gave HTTP response to HTTPS client"
_EVENT: Final = ("reason", "type", "action", "note")
_WRITE: Final = ("verb", "resource", "subresource", "name", "status", "reason")
_VERBS: Final = ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb")
_PARTS: Final = ("pods", "events", "writes")


def pace_of(observed_for: str | None) -> LoopSlices:
    """Return how long to observe a step. `observed_for`: `0.8s after the step: why`, None if it settles.

    Raises ValueError if the text begins with no duration.
    """
    if observed_for is None:
        return LoopSlices()
    found = _LASTS.match(observed_for)
    if found is None:
        raise ValueError(f"observedFor {observed_for!r} does not begin with a duration in s or ms")
    return LoopSlices(shortest_s=float(found["count"]) / (1000 if found["unit"] == "ms" else 1), quiet_s=0.0)


class ExtenderTrial:
    """One scenario and its extender."""

    def __init__(self, record: Json, extender: ScriptedExtender) -> None:
        self._record = record
        self._extender = extender
        self._extenders = configured(record)
        self._expected: list[Json] = record["expected"]
        self._calls = recorded_calls(record)
        self._paths = Paths(
            prioritize=_paths_of(self._extenders, "prioritizeVerb"),
            bind=_paths_of(self._extenders, "bindVerb"),
        )
        addresses = iter(extender.addresses)
        text = _PLACE.sub(
            lambda found: found[0].replace(ADDRESS, next(addresses)), str(record["schedulerConfig"])
        )
        self.configuration = _with_authority(text, trusting(record), extender)
        self.more_documents = ""
        self.pace = pace_of(record.get("observedFor"))

    @property
    def mask(self) -> Callable[[Any], Any]:
        """The masks of the scenario; they learn the uids of further pods."""
        return self._extender.masks

    async def begin_step(self, number: int) -> None:
        """Let the extender answer as in this step."""
        await self._extender.begin_step(number, listens=listens(self._record, number))

    async def seen(self, observation: Json, number: int) -> Json:
        """Return the observation in the short form of the recordings, with the calls."""
        await self._extender.learn_pods()
        expected = self._expected[number - 1]
        short = {
            "pods": observation["pods"],
            "events": [_event(item, expected["events"]) for item in observation["events"]],
            "writes": [_write(item, expected["writes"]) for item in observation["writes"]],
        }
        seen: Json = {part: as_recorded(short[part], expected[part]) for part in _PARTS}
        return {**seen, "calls": list(self._extender.calls), "problems": list(self._extender.problems)}

    def difference(
        self, number: int, seen: Json, *, retries_count: bool, unstable: frozenset[str]
    ) -> Json | None:
        """Return the first difference: calls, pods, events, writes. A failed side effect is one, too."""
        if seen["problems"]:
            return {"problem": seen["problems"][0]}
        earlier = [call for calls in self._calls[: number - 1] for call in calls]
        expected = self._expected[number - 1]
        difference = calls_difference(
            self._calls[number - 1],
            [call_of(_as_item(call, expected["calls"])) for call in seen["calls"]],
            self._paths,
            retries_count=retries_count,
            unstable="calls" in unstable,
            earlier=earlier,
        )
        if difference is not None:
            return difference
        if not retries_count:
            expected, seen = (
                {**one, **{part: self._without_repeats(one, part, number) for part in ("events", "writes")}}
                for one in (expected, seen)
            )
        return first_difference(expected, seen, retries_count=retries_count, unstable=unstable)

    def _without_repeats(self, observation: Json, part: str, number: int) -> list[Json]:
        """Return events or writes without those that only show one more attempt.

        These are patches of an Event's series, and the Events and conditions that were recorded for an
        earlier step and not for this one.
        """
        recorded = self._expected[number - 1][part]
        earlier = [item for step in self._expected[: number - 1] for item in step[part] if _is_report(item)]
        return [
            item
            for item in observation[part]
            if not (item.get("resource") == "events" and item.get("verb") == "patch")
            and (item in recorded or item not in earlier)
        ]


@asynccontextmanager
async def extender_of(record: Json, stage: Stage) -> AsyncIterator[ScriptedExtender]:
    """Yield the extender of a recording. Raises ValueError for a side effect that it cannot play."""
    steps = recorded_calls(record)
    for call in (call for calls in steps for call in calls):
        side_effect(call.side_effect, call.request["body"] if isinstance(call.request["body"], dict) else {})
    places = _PLACE.finditer(str(record["schedulerConfig"]))
    plain = _NO_TLS in str(record["expected"])
    schemes = ["http" if plain else found["scheme"] or "http" for found in places]
    names = [tls["serverName"] for tls in trusting(record) if tls.get("serverName")]
    script, name = Script(steps), next(iter(names), "")
    async with ScriptedExtender(stage.api, script, schemes, stage.folder, name) as extender:
        yield extender


@asynccontextmanager
async def extender_trial(record: Json, stage: Stage) -> AsyncIterator[Trial]:
    """Yield the trial of a recording with an extender. Raises ValueError as `extender_of`."""
    async with extender_of(record, stage) as extender:
        yield ExtenderTrial(record, extender)


# --- what a recording says -----------------------------------------------------------------------


def configured(record: Json) -> list[Json]:
    """Return the `extenders` of the scheduler's configuration."""
    documents = yaml.safe_load_all(record["schedulerConfig"])
    return [extender for document in documents if document for extender in document.get("extenders") or ()]


def trusting(record: Json) -> list[Json]:
    """Return the `tlsConfig` with an authority of each extender that was called."""
    called = {call.path for calls in recorded_calls(record) for call in calls}
    settings = [
        one.get("tlsConfig") or {}
        for one in configured(record)
        if any(called & _paths_of([one], verb) for verb in _VERBS)
    ]
    return [tls for tls in settings if tls.get("caData") or tls.get("caFile")]


def recorded_calls(record: Json) -> list[list[Call]]:
    """Return the recorded calls of each step."""
    return [[call_of(call) for call in step["calls"]] for step in record["expected"]]


def listens(record: Json, number: int) -> bool:
    """Return whether the extender listened at its address in a step (from 1).

    It did not where the recording says so, in its notes or in a message of the step. It did not either if no
    call arrived although a pod was scheduled that kube-scheduler must have asked about: an extender that
    filters or binds is asked about every pod that it manages.
    """
    expected = record["expected"][number - 1]
    if expected["calls"]:
        return True
    if _REFUSED.search(str(record.get("notes", ""))) or _REFUSED.search(str(expected["pods"])):
        return False
    scheduled = {
        item["regarding"].partition("/")[2] for item in expected["events"] if item["reason"] == "Scheduled"
    }
    pods = [content for content in _created(record) if content["metadata"]["name"] in scheduled]
    return not any(_is_asked(extender, pod) for extender in configured(record) for pod in pods)


def _created(record: Json) -> Iterable[Json]:
    operations = [*record.get("setup", ()), *(item for step in record["steps"] for item in step["ops"])]
    return (item["create"] for item in operations if item.get("create", {}).get("kind") == "Pod")


def _is_asked(extender: Json, pod: Json) -> bool:
    """Return True if an extender is asked about every pod like this one that is scheduled."""
    managed = {resource["name"] for resource in extender.get("managedResources") or ()}
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    asked = {
        name
        for container in containers
        for kind in ("requests", "limits")
        for name in (container.get("resources") or {}).get(kind) or ()
    }
    calls = bool(extender.get("filterVerb") or extender.get("bindVerb"))
    return calls and (not managed or bool(managed & asked))


def _paths_of(extenders: Sequence[Json], verb: str) -> set[str]:
    """Return the paths of one verb's calls to all extenders."""
    return {
        f"{urlsplit(str(one['urlPrefix']).replace(ADDRESS, 'address')).path.rstrip('/')}/{one[verb]}"
        for one in extenders
        if one.get(verb)
    }


def _with_authority(configuration: str, settings: Iterable[Json], extender: ScriptedExtender) -> str:
    """Return the configuration with the extender's own authority in the place of the one that was recorded.

    `settings`: the `tlsConfig` whose authority is replaced.
    """
    data = base64.b64encode(extender.ca).decode()
    for tls in settings:
        for key, own in (("caData", data), ("caFile", str(extender.ca_file))):
            if tls.get(key):
                configuration = configuration.replace(tls[key], own)
    return configuration


# --- the short form of the recordings ------------------------------------------------------------


def _event(event: Json, recorded: Sequence[Json]) -> Json:
    about = event.get("regarding") or {}
    regarding = f"{about.get('kind')}/{about.get('name')}"
    return _short({**event, "regarding": regarding}, (*_EVENT, "regarding"), recorded)


def _write(write: Json, recorded: Sequence[Json]) -> Json:
    return _short(write, _WRITE, recorded)


def _is_report(item: Json) -> bool:
    """Return True for an Event, and for a write that only reports the state of a pod."""
    return "resource" not in item or item["resource"] == "events" or item.get("subresource") == "status"


def _short(item: Mapping[str, Any], fields: Sequence[str], recorded: Sequence[Json]) -> Json:
    """Return the fields of the short form, and any other field that the recording has."""
    shown = {*fields, *(key for one in recorded for key in one)}
    return {key: value for key, value in item.items() if key in shown and value is not None}


def _as_item(call: Call, recorded: Sequence[Json]) -> Json:
    """Return a call in the form of the recordings, with masks as open as the recording's."""
    request = as_recorded(call.request, [one["request"] for one in recorded])
    return {"request": request, "response": call.response, "sideEffect": call.side_effect}
