"""The HTTP extenders of a recorded script: real servers on the loopback, with answers in the script's order.

Used by `support.scripted_groups`; `parity/golden_podgroups_1.38/README.md` describes the form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from support.raw_http import Request, answer, raw_server
from support.scripted_api import ScriptedApi

Json = dict[str, Any]
_FIRST: Final[Json] = {}
"""The answer of a verb for which the script has none: everything passes."""


class ScriptedExtenders:
    """The extenders of one script. `calls`: what the host asked, and the answers, since they were cleared."""

    def __init__(self, extenders: Sequence[Json], api: ScriptedApi) -> None:
        self._scripts = extenders
        self._api = api
        self._counts: dict[tuple[int, str], int] = {}
        self._servers = AsyncExitStack()
        self._addresses: list[str] = []
        self.calls: list[Json] = []

    async def begin(self) -> list[Json]:
        """Start the servers. Return the extenders for the configuration."""
        settings = []
        for number, script in enumerate(self._scripts):
            server = await self._servers.enter_async_context(
                raw_server(lambda request, number=number: self._answer(number, request))  # type: ignore[misc]
            )
            self._addresses.append(server.address)
            settings.append({**script["config"], "urlPrefix": server.url})
        return settings

    async def end(self) -> None:
        """Stop the servers."""
        await self._servers.aclose()

    def masked(self, shown: Json) -> Json:
        """Return a record with the names of the addresses in place of the addresses."""
        if not self._addresses:
            return shown
        text = json.dumps(shown)
        for number, address in enumerate(self._addresses):
            text = text.replace(address, f"<address-{number}>")
        return dict(json.loads(text))

    def _answer(self, number: int, request: Request) -> bytes:
        verb = "preempt" if request.line.endswith("/preempt") else "filter"
        given = self._scripts[number].get(verb) or [_FIRST]
        count = self._counts.get((number, verb), 0)
        self._counts[number, verb] = count + 1
        step = given[min(count, len(given) - 1)]
        pod = request.json["Pod"]["metadata"]
        call: Json = {"extender": number, "verb": verb, "pod": f"{pod['namespace']}/{pod['name']}"}
        self.calls.append(call)
        asked = self._preempt if verb == "preempt" else _filter
        return asked(request.json, step, call)

    def _preempt(self, body: Json, step: Json, call: Json) -> bytes:
        names = {pod["metadata"]["uid"]: _key(pod) for pod in self._api.of_kind("Pod")}
        uids = {name: uid for uid, name in names.items()}
        asked = {
            node: _victims([names[one["UID"]] for one in meta.get("Pods") or ()], meta)
            for node, meta in body["NodeNameToMetaVictims"].items()
        }
        call["asked"] = asked
        if "status" in step:
            call["status"] = step["status"]
            return answer(b"", step["status"])
        answered = {node: one for node, one in asked.items() if node not in step.get("omit", ())}
        broken: Mapping[str, int] = step.get("numPDBViolations", {})
        for node, victims in step.get("victims", {}).items():
            answered[node] = _victims(victims, {"NumPDBViolations": broken.get(node, 0)})
        call["answered"] = answered
        metas = {
            node: {
                "Pods": [{"UID": uids[name]} for name in one["victims"]],
                "NumPDBViolations": one.get("numPDBViolations", 0),
            }
            for node, one in answered.items()
        }
        return answer(json.dumps({"NodeNameToMetaVictims": metas}))


def _filter(body: Json, step: Json, call: Json) -> bytes:
    nodes = sorted(body["NodeNames"])
    failed = {node: text for node, text in step.get("failed", {}).items() if node in nodes}
    never = {node: text for node, text in step.get("unresolvable", {}).items() if node in nodes}
    passed = [node for node in nodes if node not in failed and node not in never]
    call |= {"nodes": nodes, "passed": passed}
    verdict = {"NodeNames": passed, "FailedNodes": failed, "FailedAndUnresolvableNodes": never}
    return answer(json.dumps(verdict))


def _victims(names: Sequence[str], meta: Mapping[str, Any]) -> Json:
    shown: Json = {"victims": list(names)}
    if broken := meta.get("NumPDBViolations"):
        shown["numPDBViolations"] = broken
    return shown


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
