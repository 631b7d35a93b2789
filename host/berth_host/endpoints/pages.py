"""`/berth/v1` on the secure port: answers about pods and plugins, and errors as Kubernetes Status objects.

The server checks who may read the paths (nonResourceURLs).
"""

from __future__ import annotations

from typing import Final, Protocol

from berth_host.endpoints.answer import Answer, Request, as_json, failure, not_found
from berth_host.endpoints.plugins import HostOfPlugins, plugins_answer
from berth_host.explain.answering import pod_answer, unknown_text
from berth_host.explain.diagnosis import ATTEMPTS_KEPT
from berth_host.explain.whereabouts import AnsweringHost

PREFIX: Final = "/berth/v1/"
_PODS: Final = "pods"
_COUNTS: Final = {str(count): count for count in range(1, ATTEMPTS_KEPT + 1)}
_SHOWN: Final = 40


class HostOnPages(AnsweringHost, HostOfPlugins, Protocol):
    """The parts of the host that the pages show."""


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


class Answers:
    """Handles all paths below PREFIX."""

    def __init__(self, process: AnsweringProcess) -> None:
        self._process = process

    async def answer(self, request: Request) -> Answer:
        """Answer one request."""
        if request.method not in ("GET", "HEAD"):
            return failure(405, "MethodNotAllowed", f"{request.path} is read with GET")
        parts = request.path.removeprefix(PREFIX).split("/")
        if parts == ["plugins"]:
            return self._plugins()
        if len(parts) == 3 and parts[0] == _PODS and parts[1] and parts[2]:
            return await self._pod(f"{parts[1]}/{parts[2]}", request)
        return not_found()

    def _plugins(self) -> Answer:
        host = self._process.host
        return _not_ready("it has just been started") if host is None else as_json(plugins_answer(host))

    async def _pod(self, key: str, request: Request) -> Answer:
        process = self._process
        host = process.host
        if host is None or not process.is_connected:
            return _not_ready("it does not know the cluster yet")
        if not process.is_leading:
            return _not_ready("it stands by: only the leader tries pods, ask that one")
        node = (request.query.get("node") or ("",))[0]
        count = (request.query.get("attempts") or ("1",))[0]
        if count not in _COUNTS:
            problem = f"attempts={count[:_SHOWN]} is not a number from 1 to {ATTEMPTS_KEPT}, which are kept"
            return failure(400, "BadRequest", problem)
        found = await pod_answer(host, key, node=node, attempts=_COUNTS[count])
        if found is None:
            return failure(404, "NotFound", unknown_text(host, key))
        return as_json(found.as_json())


def _not_ready(why: str) -> Answer:
    return failure(503, "ServiceUnavailable", f"this scheduler cannot answer: {why}")
