"""An HTTP or HTTPS scheduler extender that answers as recorded, and records what it is asked.

It answers a request as the recorded one that is equal to it was answered, otherwise as the next recorded one
on the same path. Masks in a recorded answer are replaced by the real values of this run.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from aiohttp import web
from berth_bench.versus.api import ApiClient, ApiError
from support.certificates import Authority, Pair
from support.observed.extender_calls import Call, call_of
from support.observed.masking import ADDRESS, NUMBER, PRESENT, TIME, UID, VERSION, Masks
from support.observed.playing import play

Json = dict[str, Any]
TextOf = Callable[[str], str]
_WHOLE_MASKS: Final = frozenset({UID, VERSION, TIME, PRESENT, NUMBER})
_UID_OF_POD: Final = re.compile(r"<uid of pod ([^>]+)>")
_ANY_BODY: Final = 1 << 30
_UNKNOWN: Final[Json] = {"status": 404, "raw": "the recording has no call on this path"}
_POSTS: Final = re.compile(r"\bposts (?:a|the) binding\b(?:.*?\bto node (?P<node>[\w.-]+))?")
_DELETES: Final = re.compile(
    r"\bdeletes (?:the )?(?P<kind>pod|node)\b(?: (?P<name>(?!before\b|after\b)[\w.-]+))?"
)
_AFTER: Final = re.compile(r"\bafter it answers\b|\banswers before\b|\banswers first\b")
_NOTHING: Final = re.compile(r"\b(?:not|nothing|none|never)\b")


@dataclass(frozen=True, slots=True)
class SideEffect:
    """The side effects of the extender: `operations` (README of the recordings), before or after."""

    operations: tuple[Json, ...]
    when: Literal["before", "after"] = "before"


def side_effect(recorded: Any, body: Json) -> SideEffect:
    """Return the operations of a recorded side effect, for a request with this body.

    `recorded`: operations, a sentence about the extender, or None for no side effect. Raises ValueError for a
    sentence that this function does not know.
    """
    if not recorded:
        return SideEffect(())
    if isinstance(recorded, dict | list):
        return SideEffect(tuple(recorded if isinstance(recorded, list) else [recorded]))
    text = str(recorded)
    when: Literal["before", "after"] = "after" if _AFTER.search(text) else "before"
    if _NOTHING.search(text):
        return SideEffect(())
    pod, namespace = str(body.get("PodName", "")), str(body.get("PodNamespace", "default"))
    if found := _POSTS.search(text):
        node = found["node"] or str(body.get("Node", ""))
        return SideEffect(({"bind": pod, "node": node, "namespace": namespace},), when)
    if found := _DELETES.search(text):
        name = found["name"] or (pod if found["kind"] == "pod" else str(body.get("Node", "")))
        deletion = {"delete": name, "kind": found["kind"].title(), "namespace": namespace}
        return SideEffect(({**deletion, "gracePeriodSeconds": 0},), when)
    raise ValueError(f"unknown side effect {text!r}: describe it in support/observed/scripted_extender.py")


@dataclass(slots=True)
class _Answer:
    """A recorded call, and whether it was used to answer."""

    call: Call
    used: bool = False


class Script:
    """The recorded calls of all steps, as a source of answers."""

    def __init__(self, steps: Sequence[Sequence[Call]]) -> None:
        self._steps = [[_Answer(call) for call in calls] for calls in steps]
        self._current = 0

    def begin_step(self, number: int) -> None:
        """Answer with the calls of this step (from 1) first."""
        self._current = number - 1

    def answer_for(self, call: Call) -> Call | None:
        """Return the recorded call whose answer this call gets, None if the recording has none on its path.

        An equal request counts more than one about a pod with another status, and that more than any other
        request on the path. Within these the current step comes first, and unused answers come first.
        """
        now, before = self._steps[self._current], self._steps[: self._current]
        earlier = [answer for step in reversed(before) for answer in reversed(step)]
        for matches in (Call.equals, Call.asks_the_same, Call.on_the_path_of):
            for candidates in (now, earlier):
                fitting = [answer for answer in candidates if matches(call, answer.call)]
                unused = [answer for answer in fitting if not answer.used]
                if candidates is now and unused:
                    unused[0].used = True
                    return unused[0].call
                if fitting:
                    return fitting[-1 if candidates is now else 0].call
        return None


class ScriptedExtender:
    """The extender of one scenario; an asynchronous context manager.

    `schemes`: `http` or `https` for each address that it has. `server_name`: the name in its certificate,
    empty for its address. `ca`: the authority of its certificate in PEM, which no system trusts; `ca_file`
    holds it. `problems`: side effects that failed. `pods`: names of all pods of the scenario by uid, as far
    as they were seen.
    """

    def __init__(
        self, api: ApiClient, script: Script, schemes: Sequence[str], folder: Path, server_name: str = ""
    ) -> None:
        self._arrived: list[Call | None] = []
        self.problems: list[str] = []
        self.pods: dict[str, str] = {}
        self._api = api
        self._script = script
        self._sockets = [_reserved() for _ in schemes]
        authority = Authority("extender-ca")
        self.ca = authority.pem
        self.ca_file = folder / f"extender-{secrets.token_hex(4)}.ca"
        self.ca_file.write_bytes(self.ca)
        pair = authority.issue("extender", dns=server_name)
        tls = _tls(self.ca_file.with_suffix(".pem"), pair) if "https" in schemes else None
        self._tls = [tls if scheme == "https" else None for scheme in schemes]
        self._servers = AsyncExitStack()
        self._listening = False
        self._later: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ScriptedExtender:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._servers.aclose()
        for task in self._later:
            task.cancel()
        await asyncio.gather(*self._later, return_exceptions=True)
        for reserved in self._sockets:
            reserved.close()

    @property
    def addresses(self) -> list[str]:
        """The host and port of each address; a connection is refused unless the extender listens."""
        return [f"127.0.0.1:{reserved.getsockname()[1]}" for reserved in self._sockets]

    @property
    def calls(self) -> list[Call]:
        """The calls of the extender since `begin_step`, masked, by time of arrival."""
        return [call for call in self._arrived if call is not None]

    @property
    def masks(self) -> Masks:
        """The masks for everything that this run shows."""
        return Masks(
            dropped=frozenset(),
            present=frozenset({"managedFields"}),
            pods=self.pods,
            addresses=tuple(self.addresses),
        )

    async def begin_step(self, number: int, *, listens: bool) -> None:
        """Begin a step (from 1): forget the calls so far, answer as recorded for this step."""
        self._script.begin_step(number)
        self._arrived = []
        if listens and not self._listening:
            await self._listen()
        elif self._listening and not listens:
            await self._stop_listening()
        self._listening = listens

    async def learn_pods(self) -> None:
        """Read the names of the pods that exist now, for the masks of their uids."""
        items, _ = await self._api.all_of("Pod")
        self._learn(items)

    def _learn(self, pods: Sequence[Json]) -> None:
        self.pods.update({item["metadata"]["uid"]: item["metadata"]["name"] for item in pods})

    async def _listen(self) -> None:
        application = web.Application(client_max_size=_ANY_BODY)
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._servers.push_async_callback(runner.cleanup)
        for reserved, tls in zip(self._sockets, self._tls, strict=True):
            await web.SockSite(runner, reserved, ssl_context=tls).start()

    async def _stop_listening(self) -> None:
        ports = [reserved.getsockname()[1] for reserved in self._sockets]
        await self._servers.aclose()
        self._servers = AsyncExitStack()
        self._sockets = [_reserved(port) for port in ports]

    # --- answers -------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        arrived, position = self._arrived, len(self._arrived)
        arrived.append(None)
        text = (await request.read()).decode(errors="replace")
        await self.learn_pods()
        body = _parsed(text)
        asked = self.masks(
            {
                "method": request.method,
                "path": request.path,
                "headers": _headers(request),
                "body": body,
            }
        )
        recorded = self._script.answer_for(call_of({"request": asked}))
        response = _UNKNOWN if recorded is None else recorded.response
        effect = None if recorded is None else recorded.side_effect
        arrived[position] = call_of({"request": asked, "response": response, "sideEffect": effect})
        await asyncio.sleep(float(response.get("delayMs", 0)) / 1000)
        return await self._answered(request, body if isinstance(body, dict) else {}, response, effect)

    async def _answered(
        self, request: web.Request, body: Json, response: Json, effect: Any
    ) -> web.StreamResponse:
        todo = side_effect(effect, body)
        if todo.when == "before":
            await self._do(todo)
        else:
            task = asyncio.create_task(self._do(todo))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
        if "status" not in response and request.transport is not None:
            request.transport.abort()
        content = str(await self._filled_in(response.get("raw", ""))).encode()
        kind = "text/plain"
        if "body" in response:
            content = json.dumps(await self._filled_in(response["body"])).encode()
            kind = "application/json"
        headers = {"Content-Type": kind, **response.get("headers", {})}
        return web.Response(status=int(response.get("status", 500)), body=content, headers=headers)

    async def _do(self, effect: SideEffect) -> None:
        try:
            await play(self._api, effect.operations)
        except ApiError as err:
            if err.status != 409:  # a repeated attempt finds the binding that an earlier one made
                self.problems.append(f"side effect of the extender: {err}")

    async def _filled_in(self, body: Any) -> Any:
        """Return a recorded answer with this run's values in place of the masks."""
        text = json.dumps(body)
        if "<" not in text:
            return body
        nodes, _ = await self._api.all_of("Node")
        pods, _ = await self._api.all_of("Pod")
        self._learn(pods)
        real = {("Node", item["metadata"]["name"]): item for item in nodes}
        real |= {("Pod", item["metadata"]["name"]): item for item in pods}
        uids = {name: uid for uid, name in self.pods.items()}

        def text_of(text: str) -> str:
            text = _UID_OF_POD.sub(lambda found: uids.get(found[1], found[0]), text)
            return text.replace(ADDRESS, self.addresses[0])

        return filled_in(body, real, text_of)


def filled_in(recorded: Any, real: Mapping[tuple[str, str], Json], text_of: TextOf, have: Any = None) -> Any:
    """Return a recorded value with real ones in place of the masks.

    `real`: objects by (kind, name); a recorded object gets the values of the one that it names. `text_of`:
    the text for one with masks inside. `have`: the real value in the same place, None if there is none. A
    field that is masked as a whole and has no real value is left out.
    """
    if isinstance(recorded, list):
        places = have if isinstance(have, list) else []
        return [
            filled_in(item, real, text_of, places[place] if place < len(places) else None)
            for place, item in enumerate(recorded)
        ]
    if isinstance(recorded, dict):
        known = _object_of(recorded, real) or (have if isinstance(have, dict) else {})
        return {
            key: known[key] if _is_mask(item) else filled_in(item, real, text_of, known.get(key))
            for key, item in recorded.items()
            if not _is_mask(item) or key in known
        }
    return text_of(recorded) if isinstance(recorded, str) else recorded


def _is_mask(value: Any) -> bool:
    return isinstance(value, str) and value in _WHOLE_MASKS


def _object_of(recorded: Json, real: Mapping[tuple[str, str], Json]) -> Json:
    metadata = recorded.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    is_pod = isinstance(recorded.get("spec"), dict) and "containers" in recorded["spec"]
    return real.get(("Pod" if is_pod else "Node", name), {})


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _headers(request: web.Request) -> dict[str, str]:
    """Return the headers as Go's server shows them: canonical names, without Host."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.raw_headers:
        name = "-".join(part.capitalize() for part in raw_name.decode("latin-1").split("-"))
        value = NUMBER if name == "Content-Length" else raw_value.decode("latin-1")
        if name != "Host":
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _reserved(port: int = 0) -> socket.socket:
    """Return a socket with an address of its own. It refuses connections until it listens."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", port))
    return reserved


def _tls(path: Path, pair: Pair) -> ssl.SSLContext:
    """Return a server's context with this certificate, which is written to `path` with its key."""
    path.write_bytes(pair.key + pair.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
