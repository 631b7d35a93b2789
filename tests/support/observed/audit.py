"""The API server's audit log -> the writes of one user, in the form of the recordings.

`POLICY` makes the server log exactly these writes, with bodies. `AuditLog` reads the new part of the log. The
log has the decoded requests, in whatever encoding the scheduler sent them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from support.observed.masking import masked, masked_event_name

Json = dict[str, Any]
SCHEDULER_USER: Final = "system:kube-scheduler"
_WRITES: Final = ["create", "update", "patch", "delete", "deletecollection"]
_REVIEWS: Final = ["authentication.k8s.io", "authorization.k8s.io"]
POLICY: Final[Json] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "None",
            "resources": [{"group": "authentication.k8s.io"}, {"group": "authorization.k8s.io"}],
        },
        {"level": "RequestResponse", "users": [SCHEDULER_USER], "verbs": _WRITES},
        {"level": "None"},
    ],
}
_PLACE: Final = ("resource", "apiGroup", "apiVersion", "subresource", "namespace", "name")


class AuditLog:
    """A growing file of audit events, one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def read(self) -> list[Json]:
        """Return the audit events that were written since the last call, in the order of their end."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            added = file.read()
        self._offset += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [json.loads(line) for line in lines]


def writes_of(audited: list[Json], mask: Callable[[Any], Any] = masked) -> list[Json]:
    """Return the writes by time of arrival, masked."""
    ordered = sorted(audited, key=lambda event: str(event["requestReceivedTimestamp"]))
    return [_write(event, mask) for event in ordered]


def _write(event: Json, mask: Callable[[Any], Any]) -> Json:
    place = event["objectRef"]
    write: Json = {"verb": event["verb"]}
    write |= {key: place[key] for key in _PLACE if place.get(key)}
    code = int(event["responseStatus"]["code"])
    write["status"] = code
    body = event.get("requestObject") or {}
    if place["resource"] == "events":
        write["name"] = masked_event_name(_event_name(event))
    if code >= 400:
        answer = event.get("responseObject") or event["responseStatus"]
        write["response"] = {key: answer[key] for key in ("message", "reason", "details") if answer.get(key)}
    if place["resource"] == "events" and event["verb"] == "create":
        about = body.get("regarding") or body.get("involvedObject") or {}
        write["reason"] = body.get("reason", "")
        write["regarding"] = f"{about.get('kind')} {about.get('namespace')}/{about.get('name')}"
    else:
        write["body"] = _sent(body)
    result: Json = mask(write)
    return result


def _sent(body: Json) -> Json:
    """Return the body without the server's internal apiVersion, which stands for no version in the
    request.
    """
    internal = str(body.get("apiVersion", "")).endswith("__internal")
    return {key: value for key, value in body.items() if not (internal and key == "apiVersion")}


def _event_name(event: Json) -> str:
    """Return the name as the server stored it: a scheduler may let the server generate the name."""
    stored = (event.get("responseObject") or {}).get("metadata") or {}
    return str(event["objectRef"].get("name") or stored.get("name", ""))
