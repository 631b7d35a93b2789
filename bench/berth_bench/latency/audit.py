"""Reads from an API server's audit log how soon pods were bound: what an observer sees who belongs to neither
scheduler.

A pod's time is from when the API server received the request that created the pod until it had answered the
request that bound the pod. Source: `audit.k8s.io/v1` Event, with microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from berth_sdk.rfc3339 import parse_time

POLICY: Final[dict[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods", "pods/binding"]}],
        },
        {"level": "None"},
    ],
}
FLAGS: Final = ("--audit-log-maxsize=100000", "--audit-log-maxbackup=1")
"""Flags with which kube-apiserver keeps the log of hours in one file."""
_CREATED: Final = 201


@dataclass(frozen=True, slots=True)
class Binding:
    """One pod that was bound. Times are Unix seconds by the API server's clock."""

    pod: str
    created_s: float
    bound_s: float

    @property
    def took_ms(self) -> float:
        """The milliseconds from the request that created the pod until it was bound."""
        return 1000 * (self.bound_s - self.created_s)


class AuditLog:
    """The part of an audit log that was written since the last `read`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._created_s: dict[str, float] = {}

    @property
    def unbound(self) -> set[str]:
        """The pods that were created and not bound so far."""
        return set(self._created_s)

    def read(self) -> list[Binding]:
        """Return the pods that were bound since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self._offset += whole
        return list(self._bindings(text[:whole].splitlines()))

    def _bindings(self, lines: Iterable[bytes]) -> Iterator[Binding]:
        for line in lines:
            event = orjson.loads(line)
            if (event.get("responseStatus") or {}).get("code") != _CREATED:
                continue
            ref = event["objectRef"]
            pod = f"{ref['namespace']}/{ref['name']}"
            if ref.get("subresource") != "binding":
                self._created_s[pod] = parse_time(event["requestReceivedTimestamp"])
            elif (created_s := self._created_s.pop(pod, None)) is not None:
                yield Binding(pod, created_s, parse_time(event["stageTimestamp"]))
