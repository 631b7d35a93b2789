"""The pages `/berth/v1`: answers about pods, groups, the queue and plugins; errors as Status objects.

The server checks the rights to the paths (nonResourceURLs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from berth_sdk.json.bounded import read_bounded_json
from berth_sdk.rfc3339 import format_micro_time
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.scope import scope_text

from berth_host.attach.attachments import Condition
from berth_host.attach.host_attachments import HostAttachments
from berth_host.attach.state import ATTACHED, NOT_NEEDED
from berth_host.config.configuration import LoadedConfiguration
from berth_host.endpoints.request_response import Answer, Request, as_json, failure, not_found
from berth_host.endpoints.watching import PERIOD_S, Listed, Watches
from berth_host.errors.endpoints import QuestionError, UnknownObjectError
from berth_host.explain.diagnosis import ATTEMPTS_KEPT
from berth_host.explain.make_group_answer import WORDS, group_answer, groups_answer, unknown_group_text
from berth_host.explain.make_pod_answer import pod_answer, unknown_text
from berth_host.explain.nodes_answer import nodes_answer
from berth_host.explain.pod_fit import DrainAnswer, PodFit
from berth_host.explain.pod_state import AnsweringHost
from berth_host.explain.queue_answer import ORDERS, PARTS, QUEUE_LAST, QueueQuery, queue_answer
from berth_host.extenders.client import ExtenderClient
from berth_host.extenders.extenders import Extenders
from berth_host.log.secrets import masked
from berth_host.metrics.plugin_stats import CallStats, PluginStats
from berth_host.model.clock import Clock
from berth_host.plugins.clients import Clients
from berth_host.questions.drain import Drain
from berth_host.questions.fit import Fit, Refit
from berth_host.questions.questions import A, Manifest, Question
from berth_host.rpc.client import PluginClient


class HostOfPlugins(Protocol):
    """The parts of the host that this page shows."""

    configuration: LoadedConfiguration
    clients: Clients
    attachments: HostAttachments
    extenders: Extenders

    @property
    def clock(self) -> Clock:
        """The clock of the host."""
        ...

    def plugin_stats(self) -> dict[str, PluginStats]:
        """Return the cost of each plugin, by name."""
        ...


def plugins_answer(host: HostOfPlugins) -> dict[str, Any]:
    """Return the answer: every plugin of every profile, by name, and the HTTP extenders in their order."""
    clients: dict[str, list[PluginClient]] = {}
    for by_name in host.clients.by_profile.values():
        for name, client in by_name.items():
            clients.setdefault(name, []).append(client)
    conditions: dict[str, list[Condition]] = {}
    for condition in host.attachments.attached_places.conditions():
        for name in condition.plugins:
            conditions.setdefault(name, []).append(condition)
    stats = host.plugin_stats()
    return {
        "plugins": [
            _plugin(host, clients[name], conditions.get(name, []), stats[name]) for name in sorted(clients)
        ],
        "extenders": [_extender(client) for client in host.extenders.clients],
        "missing": list(host.clients.missing),
        "answeredAt": format_micro_time(host.clock.now_s()),
    }


def _plugin(
    host: HostOfPlugins, clients: list[PluginClient], conditions: list[Condition], stats: PluginStats
) -> dict[str, Any]:
    first = clients[0]
    attached = host.attachments.attached_places.plugins.get(first.name)
    asked = None if attached is None or attached.active is None else attached.active.instance_id
    # First the instance that serves the plugin's calls, then the other attached instances.
    conditions = sorted(
        conditions, key=lambda one: (one.instance_id != asked, one.state not in (*ATTACHED, *NOT_NEEDED))
    )
    condition = conditions[0] if conditions else None
    return {
        "name": first.name,
        "version": first.descriptor.version,
        "runs": "inProcess" if condition is None else "attached",
        "available": first.available,
        "required": first.settings.required,
        "scope": scope_text(first.descriptor.scope),
        "attachment": None if condition is None else _attachment(host, condition),
        "otherInstances": [_attachment(host, other) for other in conditions[1:]],
        "circuits": {
            circuit.point: {"state": circuit.state.value, "lastFailure": circuit.last_failure}
            for condition in conditions[:1]
            for circuit in condition.circuits
            if circuit.plugin == first.name
        },
        "profiles": [_profile(host, client) for client in clients],
        "policies": {
            point: {
                "deadlineMs": None if given.deadline_s is None else round(1000 * given.deadline_s, 3),
                "policy": None if given.policy is None else given.policy.value,
            }
            for point, given in first.settings.points.items()
        },
        "violations": stats.violations,
        "calls": [_call(name, figures) for name, figures in stats.items()],
    }


def _extender(client: ExtenderClient) -> dict[str, Any]:
    settings = client.settings
    return {
        "name": client.name,
        "urlPrefix": masked(settings.url_prefix),
        "verbs": {
            verb: given
            for verb, given in (
                ("filter", settings.filter_verb),
                ("prioritize", settings.prioritize_verb),
                ("preempt", settings.preempt_verb),
                ("bind", settings.bind_verb),
            )
            if given
        },
        "weight": settings.weight,
        "nodeCacheCapable": settings.node_cache_capable,
        "ignorable": settings.ignorable,
        "managedResources": [resource.name for resource in settings.managed_resources],
        "failing": sorted(client.failing),
        "calls": [_call(name, figures) for name, figures in client.stats.items()],
    }


def _attachment(host: HostOfPlugins, condition: Condition) -> dict[str, Any]:
    return {
        "place": condition.place,
        "state": condition.state.value,
        "reason": condition.reason,
        "since": format_micro_time(host.clock.now_s() - condition.since_s),
        "instance": condition.instance_id,
        "transport": condition.carrier,
        "contract": condition.contract or None,
        "features": list(condition.features),
        "syncedBytes": condition.synced_bytes,
        "warnings": [
            *(f"plugin {name} {reason}" for name, reason in condition.unusable.items()),
            *condition.warnings,
        ],
    }


def _profile(host: HostOfPlugins, client: PluginClient) -> dict[str, Any]:
    """Return one profile's use of the plugin: the plugin's points that the profile enables."""
    profile = host.configuration.profile(client.profile)
    enabled = {} if profile is None else profile.plugins
    points = [
        point.config_name
        for point in client.points
        if any(entry.name == client.name for entry in enabled.get(point.config_name, ()))
    ]
    return {
        "schedulerName": client.profile,
        "points": points,
        "failing": client.is_failing,
        "declares": _declares(client.descriptor, client.profile),
    }


def _declares(descriptor: Descriptor, profile: str) -> dict[str, Any]:
    """Return what the plugin declares with its arguments, in the words of the contract's enums."""
    events = descriptor.events_in(profile)
    return {
        "nodeMode": descriptor.node_mode.name,
        "needs": [f"{need.kind.name} {need.resource}".rstrip() for need in descriptor.needs],
        "events": None
        if events is None
        else [f"{one.resource} {','.join(one.actions) or '*'}" for one in events],
        "podSensitivity": descriptor.pod_sensitivity.name,
        "dependsOn": None if descriptor.depends_on is None else descriptor.depends_on.name,
        "normalization": descriptor.normalization.name,
        "readsShared": list(descriptor.reads_shared),
        "accounts": sorted(one.name for one in descriptor.accounts),
    }


def _call(name: str, figures: CallStats) -> dict[str, Any]:
    return {
        "call": name,
        "calls": figures.calls,
        "meanMs": round(1000 * figures.times.mean, 3),
        "p99Ms": round(1000 * figures.times.quantile(0.99), 3),
        "maxMs": round(1000 * figures.times.highest, 3),
        "totalMs": round(1000 * figures.times.total, 3),
        "repeats": figures.repeats,
        "overruns": figures.overruns,
        "bytesSent": figures.bytes_sent,
        "bytesReceived": figures.bytes_received,
        "failures": dict(figures.failures),
        "policies": dict(figures.policies),
    }


PREFIX: Final = "/berth/v1/"
_PODS: Final = "pods"
_GROUPS: Final = "podgroups"
_FIT: Final = "fit"
_COUNTS: Final = {str(count): count for count in range(1, ATTEMPTS_KEPT + 1)}
_SHOWN: Final = 40
QUEUE_LIMIT: Final = 500
"""The number of pods that `/berth/v1/queue` lists without a parameter `limit`."""
QUEUE_MOST: Final = 10_000
"""The most pods that one answer lists."""
LISTS: Final = {
    f"{PREFIX}queue": Listed("pods", "uid"),
    f"{PREFIX}nodes": Listed("nodes", 0),
    f"{PREFIX}{_GROUPS}": Listed("groups", "key"),
}
"""The list of each answer that has one, by path."""


class ReportsShadow(Protocol):
    """The decisions of a shadow (`shadow.record.ShadowRecord`)."""

    def as_json(self) -> dict[str, Any]:
        """Return the report."""
        ...


class HostOnPages(AnsweringHost, HostOfPlugins, Protocol):
    """The parts of the host that the pages and the query service show."""

    async def ask(self, question: Question[A]) -> A:
        """Return the answer to a question, which changes nothing. Raises QuestionError."""
        ...

    @property
    def shadow(self) -> ReportsShadow | None:
        """The decisions of a shadow; None: the host schedules."""
        ...


class AnsweringProcess(Protocol):
    """The parts of the process that these pages show."""

    @property
    def host(self) -> HostOnPages | None:
        """The host that schedules or stands by; None while the process starts."""
        ...

    @property
    def is_connected(self) -> bool:
        """True once the host has listed the cluster's objects."""
        ...

    @property
    def is_leading(self) -> bool:
        """True while this replica schedules pods."""
        ...


@dataclass(frozen=True, slots=True)
class QuestionPage:
    """A page that asks the host. `path`: the parts below PREFIX, where "*" stands for a name.

    `takes`: the kind of the object that is sent as JSON with POST; "": the page is read with GET.
    `question`: makes the question of the names in the path and of that object. `shown`: makes the JSON object
    of the host, the names and the answer. Raises QuestionError.
    """

    path: tuple[str, ...]
    question: Callable[[Sequence[str], Manifest], Question[Any]]
    shown: Callable[[HostOnPages, Sequence[str], Any], dict[str, Any]]
    takes: str = ""

    def names(self, parts: Sequence[str]) -> list[str] | None:
        """Return the names in the parts of a path; None for the path of another page."""
        if len(parts) != len(self.path) or not all(parts):
            return None
        if any(part not in ("*", given) for part, given in zip(self.path, parts, strict=True)):
            return None
        return [given for part, given in zip(self.path, parts, strict=True) if part == "*"]


def _whole(_: HostOnPages, __: Sequence[str], found: PodFit | DrainAnswer) -> dict[str, Any]:
    return found.as_json()


def _by_node(host: HostOnPages, names: Sequence[str], found: PodFit | None) -> dict[str, Any]:
    if found is None:
        raise UnknownObjectError(unknown_text(host, "/".join(names)))
    return found.by_node()


QUESTIONS: Final = (
    QuestionPage((_FIT,), lambda _, pod: Fit(pod), _whole, takes="Pod"),
    QuestionPage((_PODS, "*", "*", _FIT), lambda names, _: Refit("/".join(names)), _by_node),
    QuestionPage(("nodes", "*", "drain"), lambda names, _: Drain(names[0]), _whole),
)
"""The pages that ask. The query service sends their answers, and asks `Simulate` itself, slice by slice."""


class Answers:
    """The handler of all paths below PREFIX."""

    def __init__(self, process: AnsweringProcess, period_s: float = PERIOD_S) -> None:
        """Create the handler. `period_s`: seconds between two looks of a watch."""
        self._process = process
        self.watches = Watches(self._value, LISTS, period_s)

    async def answer(self, request: Request) -> Answer:
        """Answer one request; with `watch=true` as a stream."""
        parts = request.path.removeprefix(PREFIX).split("/")
        asked = next(((page, names) for page in QUESTIONS if (names := page.names(parts)) is not None), None)
        if asked is not None and asked[0].takes:
            return await self._ask(*asked, request)
        if request.method not in ("GET", "HEAD"):
            return failure(405, "MethodNotAllowed", f"{request.path} is read with GET")
        if asked is not None:
            return await self._ask(*asked, request)
        watch = (request.query.get("watch") or ("false",))[0]
        if watch not in ("true", "false"):
            return failure(400, "BadRequest", f"watch={watch[:_SHOWN]} is neither true nor false")
        if watch == "true" and request.method == "GET":
            return await self.watches.answer(request)
        value = await self._value(request)
        return value if isinstance(value, Answer) else as_json(value)

    async def _value(self, request: Request) -> dict[str, Any] | Answer:
        """Return the object to answer, or an error."""
        parts = request.path.removeprefix(PREFIX).split("/")
        if parts == ["plugins"]:
            return self._plugins()
        if parts == ["queue"]:
            return await self._queue(request)
        if parts == ["nodes"]:
            return await self._nodes(request)
        if parts == [_GROUPS]:
            return self._groups()
        if parts == ["shadow"]:
            return self._shadow()
        if len(parts) == 3 and parts[0] == _PODS and parts[1] and parts[2]:
            return await self._pod(f"{parts[1]}/{parts[2]}", request)
        if len(parts) == 3 and parts[0] == _GROUPS and parts[1] and parts[2]:
            return await self._group(parts[1], parts[2], request)
        return not_found()

    def _plugins(self) -> dict[str, Any] | Answer:
        host = self._process.host
        return _not_ready("it has just been started") if host is None else plugins_answer(host)

    async def _nodes(self, request: Request) -> dict[str, Any] | Answer:
        host = self._leader()
        if isinstance(host, Answer):
            return host
        pod = (request.query.get("pod") or ("",))[0]
        found = await nodes_answer(host, pod)
        return failure(404, "NotFound", unknown_text(host, pod)) if found is None else found

    def _groups(self) -> dict[str, Any] | Answer:
        host = self._leader()
        return host if isinstance(host, Answer) else groups_answer(host)

    def _shadow(self) -> dict[str, Any] | Answer:
        host = self._leader()
        if isinstance(host, Answer):
            return host
        if host.shadow is None:
            problem = "this scheduler is no shadow: ask one that was started with --shadow"
            return failure(404, "NotFound", problem)
        return host.shadow.as_json()

    async def _queue(self, request: Request) -> dict[str, Any] | Answer:
        host = self._leader()
        if isinstance(host, Answer):
            return host
        given = {name: values[0] for name, values in request.query.items() if values}
        part, order = given.get("part", ""), given.get("order", "oldest")
        limit = _number(given.get("limit", str(QUEUE_LIMIT)), 1, QUEUE_MOST)
        if limit is None:
            problem = f"limit={given['limit'][:_SHOWN]} is not a number from 1 to {QUEUE_MOST}"
            return failure(400, "BadRequest", problem)
        offset = _number(given.get("offset", "0"), 0, QUEUE_LAST)
        if offset is None:
            problem = f"offset={given['offset'][:_SHOWN]} is not a number from 0 to {QUEUE_LAST}"
            return failure(400, "BadRequest", problem)
        if part and part not in PARTS:
            return failure(400, "BadRequest", f"part={part[:_SHOWN]} is none of {', '.join(PARTS)}")
        if order not in ORDERS:
            return failure(400, "BadRequest", f"order={order[:_SHOWN]} is none of {', '.join(ORDERS)}")
        query = QueueQuery(
            limit=limit,
            offset=offset,
            part=part,
            reason=given.get("reason", ""),
            contains=given.get("contains", ""),
            order=order,
        )
        return await queue_answer(host, query)

    async def _ask(self, page: QuestionPage, names: Sequence[str], request: Request) -> Answer:
        manifest: Any = {}
        if page.takes:
            if request.method != "POST":
                said = f"{request.path} takes a {page.takes} as JSON with POST"
                return failure(405, "MethodNotAllowed", said)
            try:
                manifest = read_bounded_json(request.body)
            except ValueError:
                manifest = None
            if not isinstance(manifest, dict):
                return failure(400, "BadRequest", f"the body is not a JSON object: send a {page.takes}")
        host = self._leader()
        if isinstance(host, Answer):
            return host
        try:
            found = page.shown(host, names, await host.ask(page.question(names, manifest)))
        except UnknownObjectError as err:
            return failure(404, "NotFound", str(err))
        except QuestionError as err:
            return failure(400, "BadRequest", str(err))
        return as_json(found | {"answeredAt": format_micro_time(host.clock.now_s())})

    def _leader(self) -> HostOnPages | Answer:
        """Return the host that schedules; an error while there is none."""
        host = self._process.host
        if host is None or not self._process.is_connected:
            return _not_ready("it has not listed the cluster yet")
        if not self._process.is_leading:
            return _not_ready("it is on standby, and only the leader schedules pods: ask the leader")
        return host

    async def _group(self, namespace: str, name: str, request: Request) -> dict[str, Any] | Answer:
        host = self._leader()
        if isinstance(host, Answer):
            return host
        word = (request.query.get("kind") or ("podgroup",))[0]
        if word not in WORDS:
            return failure(400, "BadRequest", f"kind={word[:_SHOWN]} is none of {', '.join(WORDS)}")
        found = await group_answer(host, word, namespace, name)
        if found is None:
            return failure(404, "NotFound", unknown_group_text(host, word, f"{namespace}/{name}"))
        return found.as_json()

    async def _pod(self, key: str, request: Request) -> dict[str, Any] | Answer:
        host = self._leader()
        if isinstance(host, Answer):
            return host
        node = (request.query.get("node") or ("",))[0]
        count = (request.query.get("attempts") or ("1",))[0]
        if count not in _COUNTS:
            problem = f"attempts={count[:_SHOWN]} is not a number from 1 to {ATTEMPTS_KEPT}, which are kept"
            return failure(400, "BadRequest", problem)
        found = await pod_answer(host, key, node=node, attempts=_COUNTS[count])
        if found is None:
            return failure(404, "NotFound", unknown_text(host, key))
        return found.as_json()


def _number(text: str, least: int, most: int) -> int | None:
    """Return the number; None if the text is none, or not from `least` to `most`."""
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)):
        return None
    return int(text) if least <= int(text) <= most else None


def _not_ready(why: str) -> Answer:
    return failure(503, "ServiceUnavailable", f"this scheduler cannot answer: {why}")
