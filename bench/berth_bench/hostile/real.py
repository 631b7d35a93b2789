"""Measure cases on a real API server, with kube-scheduler and berth beside each other.

Both schedulers run all the time and watch everything; each places the pods with its own `schedulerName`. The
cases, and within a case the schedulers, follow one another, so that every CPU second has one cause.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

from berth_bench.hostile.cases import Case, Json, Made, encoded, without_nesting
from berth_bench.hostile.cluster import answer_of, following_pod, objects
from berth_bench.hostile.figures import Answer, Attempt, Row, Side, Size
from berth_bench.hostile.judging import longest
from berth_bench.hostile.loop_holds import LoopHolds
from berth_bench.versus.api import ApiClient, ApiError
from berth_bench.versus.contenders import UNLIMITED
from berth_bench.versus.objects import create_all
from berth_bench.versus.real_servers import ADMIN, SCHEDULER, RealServers, program
from berth_bench.versus.scheduler_process import SchedulerProcess, SchedulerSetup

KUBE: Final = "kube"
BERTH: Final = "berth"
MORE_FLAGS: Final = ("--max-requests-inflight=2000",)
_GROUPS: Final = "--feature-gates=GenericWorkload=true"
_CONFIGURATION: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
profiles: [{{schedulerName: {name}}}]
"""
_PATIENCE_S: Final = 90.0
_ADMITTED_WITHIN_S: Final = 20.0
_REASON_CHARS: Final = 200
_LOOK_S: Final = 0.2
_IDLE_SHARE: Final = 0.1
"""A process that uses no more of a processor than this is idle."""
_CLEARED_WITHIN_S: Final = 30.0
_AT_ONCE: Final = 16
_EPHEMERAL: Final = "ephemeralContainers"


class Yard:
    """An API server with nodes, kube-scheduler and berth. Use `yard` to make one."""

    def __init__(self, servers: RealServers, folder: Path, size: Size, pod_groups: bool) -> None:
        self._servers = servers
        self._api = ApiClient(servers.url, servers.tokens[ADMIN])
        self._folder = folder
        self._size = size
        self._flags = (_GROUPS,) if pod_groups else ()
        self._holds = LoopHolds(folder / "holds")
        self._running: dict[str, SchedulerProcess] = {}

    async def start(self) -> None:
        """Create the nodes and start both schedulers. Raises ApiError and SchedulerError."""
        await create_all(self._api, objects(self._size.nodes), _AT_ONCE)
        await asyncio.gather(*(self._start(name) for name in (KUBE, BERTH)))

    async def stop(self) -> None:
        """Stop both schedulers and close the connections."""
        await asyncio.gather(*(process.stop() for process in self._running.values()))
        self._holds.close()
        await self._api.close()

    async def row(self, case: Case) -> Row:
        """Measure one case. Raises ApiError and SchedulerError."""
        nodes = self._size.nodes
        size, reason = await longest(case, nodes, self._size.most_bytes, self._refusal)
        if not size:
            return Row(case=case.name, nodes=nodes, size=0, size_bytes=0, limited_by=reason)
        await asyncio.gather(*(self._idle(name) for name in (KUBE, BERTH)))
        self._holds.reset()
        made = case.make(size, nodes)
        kube = await self._side(KUBE, made)
        berth = await self._side(BERTH, made)
        hold_s, held_by = self._holds.longest()
        return Row(
            case=case.name,
            nodes=nodes,
            size=size,
            size_bytes=len(encoded(made.judged)),
            limited_by=reason,
            kube=kube,
            berth=berth,
            hold_s=hold_s,
            held_by=held_by,
        )

    # --- schedulers ------------------------------------------------------------------------------

    async def _start(self, name: str) -> None:
        setup = SchedulerSetup(
            program="berth" if name == BERTH else str(program("kube-scheduler")),
            kubeconfig=self._servers.kubeconfig(SCHEDULER),
            folder=self._folder,
            configuration=_CONFIGURATION.format(name=name),
            client_connection=UNLIMITED,
            flags=self._flags,
            module=("-m", "berth_bench.hostile.loop_holds", str(self._folder / "holds")),
        )
        process = SchedulerProcess(setup, name)
        self._running[name] = process
        await process.start()
        await process.ready()

    async def _restart(self, name: str) -> None:
        await self._running[name].kill()
        await self._start(name)

    async def _idle(self, name: str) -> None:
        """Wait until a scheduler uses hardly any CPU, or has ended, or _PATIENCE_S have passed."""
        process = self._running[name]
        ends_s = time.monotonic() + _PATIENCE_S
        looks = 0
        while looks < 2 and process.ended_with is None and time.monotonic() < ends_s:
            cpu_s = process.cpu_s()
            await asyncio.sleep(_LOOK_S)
            used_s = 0.0 if process.ended_with is not None else process.cpu_s() - cpu_s
            looks = looks + 1 if used_s <= _IDLE_SHARE * _LOOK_S else 0

    # --- one case --------------------------------------------------------------------------------

    async def _side(self, name: str, made: Made) -> Side:
        """Create the objects, measure the pod and a plain one after it, and delete all."""
        plain = following_pod()
        try:
            for content in made.before:
                await self._create(content)
            await self._idle(name)
            attempt = await self._attempt(name, made.pod, made.with_pod)
            following = await self._attempt(name, plain)
        finally:
            await self._clear([made.pod, *made.with_pod, plain, *reversed(made.before)])
            if any(process.ended_with is not None for process in self._running.values()):
                await self._restart(name)
        if attempt.answer.is_missing or following.answer.is_missing:
            await self._restart(name)
        return Side(attempt=attempt, following=following)

    async def _attempt(self, name: str, content: Json, others: Sequence[Json] = ()) -> Attempt:
        """Measure a pod; `others`: pods that are created just before it."""
        process = self._running[name]
        ends_s = time.monotonic() + _PATIENCE_S
        began_s = process.cpu_s()
        last_s = 0.0
        pods = [{**one, "spec": {**one["spec"], "schedulerName": name}} for one in (*others, content)]
        for first in range(0, len(pods), _AT_ONCE):
            await asyncio.gather(*(self._create(one) for one in pods[first : first + _AT_ONCE]))
        while True:
            await self._idle(name)
            if process.ended_with is not None:
                return Attempt(cpu_s=last_s, answer=Answer.ENDED)
            last_s = process.cpu_s() - began_s
            found = await self._text("Pod", content["metadata"]["name"])
            answer = answer_of(json.loads(without_nesting(found)) if found else {})
            if not answer.is_missing or time.monotonic() > ends_s:
                return Attempt(cpu_s=last_s, answer=answer)

    async def _refusal(self, content: Json) -> str:
        """Return why the API server refuses an object; "" if it admits the object, which is deleted then."""
        if content["kind"] == "Pod":
            content = {**content, "spec": {**content["spec"], "schedulerName": "nobody"}}
        try:
            async with asyncio.timeout(_ADMITTED_WITHIN_S):
                await self._create(content)
        except (ApiError, aiohttp.ClientError, TimeoutError) as err:
            if isinstance(err, ApiError):
                return err.message[-_REASON_CHARS:]
            return str(err)[-_REASON_CHARS:] or f"no answer of the API server within {_ADMITTED_WITHIN_S:g} s"
        finally:
            await self._clear([content])
        return ""

    async def _create(self, content: Json) -> None:
        """Create an object with its status, and with its ephemeral containers."""
        late = content["spec"].get(_EPHEMERAL) if content["kind"] == "Pod" else None
        if late is not None:
            content = {**content, "spec": {**content["spec"]}}
            del content["spec"][_EPHEMERAL]
        await self._api.text("POST", await self._path(content["kind"]), encoded(content))
        if late is not None:
            # Only a pod that exists may get them.
            name = content["metadata"]["name"]
            await self._patch("Pod", name, {"spec": {_EPHEMERAL: late}}, f"/{_EPHEMERAL.lower()}")
        if "status" in content and content["kind"] != "Pod":
            name = content["metadata"]["name"]
            kind = content["kind"]
            await self._patch(kind, name, {"status": content["status"]}, "/status")

    async def _clear(self, contents: Sequence[Json]) -> None:
        """Delete objects, and wait until they are gone."""
        for content in contents:
            path = f"{await self._path(content['kind'], content['metadata']['name'])}?gracePeriodSeconds=0"
            try:
                await self._api.text("DELETE", path)
            except ApiError as err:
                if err.status != 404:
                    raise
        ends_s = time.monotonic() + _CLEARED_WITHIN_S
        for content in contents:
            kind, name = content["kind"], content["metadata"]["name"]
            while left := await self._text(kind, name):
                if kind == "Namespace":
                    ended = json.loads(left) | {"spec": {"finalizers": []}}
                    await self._api.text("PUT", f"api/v1/namespaces/{name}/finalize", ended)
                else:
                    await self._without_finalizers(kind, name)
                if time.monotonic() > ends_s:
                    raise ApiError(0, "it was not deleted", f"{kind} {name}")

    async def _without_finalizers(self, kind: str, name: str) -> None:
        try:
            await self._patch(kind, name, {"metadata": {"finalizers": None}})
        except ApiError as err:
            if err.status != 404:
                raise

    async def _patch(self, kind: str, name: str, body: Json, subresource: str = "") -> None:
        path = await self._path(kind, name) + subresource
        await self._api.text("PATCH", path, body, "application/merge-patch+json")

    async def _text(self, kind: str, name: str) -> str:
        """Return an object as JSON, "" if it does not exist."""
        try:
            return await self._api.text("GET", await self._path(kind, name))
        except ApiError as err:
            if err.status == 404:
                return ""
            raise

    async def _path(self, kind: str, name: str = "") -> str:
        return await self._api.path(kind, name, "default")


@asynccontextmanager
async def yard(folder: Path, size: Size, *, pod_groups: bool) -> AsyncIterator[Yard]:
    """Start the servers and both schedulers; stop them at the end of the block."""
    more = MORE_FLAGS
    async with AsyncExitStack() as stack:
        servers = stack.enter_context(RealServers(folder / "servers", more=more, pod_groups=pod_groups))
        made = Yard(servers, folder, size, pod_groups)
        stack.push_async_callback(made.stop)
        await made.start()
        yield made
