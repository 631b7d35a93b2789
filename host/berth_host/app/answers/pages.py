"""`/berth/v1` on the secure port: paths -> answers, and errors as the API's Status objects.

Added to the server by `app.endpoints`; the server decides who may read it (nonResourceURLs).
"""

from __future__ import annotations

from typing import Final, Protocol

from berth_host.app.answers.answering_host import AnsweringHost
from berth_host.app.answers.plugins import HostOfPlugins, plugins_answer
from berth_host.app.answers.pods import pod_answer, unknown_text
from berth_host.endpoints.answer import Answer, Request, as_json, failure, not_found
from berth_host.explain.diagnosis import ATTEMPTS_KEPT

PREFIX: Final = "/berth/v1/"
_PODS: Final = "pods"
_COUNTS: Final = {str(count): count for count in range(1, ATTEMPTS_KEPT + 1)}
_SHOWN: Final = 40


class HostOnPages(AnsweringHost, HostOfPlugins, Protocol):
    """All that the pages show."""


class AnsweringProcess(Protocol):
    """The process, as far as these pages show it."""

    @property
    def host(self) -> HostOnPages | None:
        """The host that schedules, or stands by."""
        ...

    @property
    def is_connected(self) -> bool:
        """Everything that exists has been handed over once."""
        ...

    @property
    def is_leading(self) -> bool:
        """Pods are scheduled here."""
        ...


class Answers:
    """One handler for all paths below PREFIX."""

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
