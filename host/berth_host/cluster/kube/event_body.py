"""Builds the events.k8s.io/v1 object of an event, in kube-scheduler's shape.

Called by `events`. Source: client-go `tools/events/event_recorder.go`, `event_broadcaster.go`, v1.36.
"""

from __future__ import annotations

import math
import socket
from datetime import UTC, datetime
from typing import Any, Final

from berth_host.cluster.kube.resources import api_version_of
from berth_host.cluster.port import EventRecord

NOTE_MAX_BYTES: Final = 1024
"""The longest note, in bytes, that the API server accepts."""
_CUT_MARK: Final = " ..."
_NAME_MAX: Final = 253
_HEX_MAX: Final = 16


def event_body(event: EventRecord, name: str, now_s: float, host_name: str) -> dict[str, Any]:
    """Return the object to create. `now_s`: Unix seconds; `host_name`: the reporting machine."""
    body: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": name, "namespace": event.regarding.namespace or "default"},
        "eventTime": micro_time(now_s),
        "reportingController": event.reporter,
        "reportingInstance": f"{event.reporter}-{host_name}",
        "action": event.action,
        "reason": event.reason,
        "regarding": _reference(event.regarding_kind, event),
    }
    if event.related is not None:
        related = event.related
        body["related"] = {"namespace": related.namespace, "name": related.name, "uid": related.uid}
    body["note"] = cut_note(event.note)
    body["type"] = event.type
    body["deprecatedSource"] = {}
    body["deprecatedFirstTimestamp"] = None
    body["deprecatedLastTimestamp"] = None
    return body


def event_name(regarding_name: str, sequence: int) -> str:
    """Return `<name>.<hex>`; the name is cut at its end if the whole would be too long."""
    return f"{regarding_name[: _NAME_MAX - _HEX_MAX - 1].rstrip('-.')}.{sequence:x}"


def micro_time(moment_s: float) -> str:
    """Format Unix seconds as `2026-01-01T00:00:00.000000Z`."""
    whole = math.floor(moment_s)
    micros = int((moment_s - whole) * 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def cut_note(note: str) -> str:
    """Return the note in at most NOTE_MAX_BYTES bytes; a text that was cut ends in ` ...`."""
    raw = note.encode()
    if len(raw) <= NOTE_MAX_BYTES:
        return note
    return raw[: NOTE_MAX_BYTES - len(_CUT_MARK)].decode(errors="ignore") + _CUT_MARK


def own_host_name() -> str:
    """Return this machine's host name."""
    return socket.gethostname()


def _reference(kind: str, event: EventRecord) -> dict[str, str]:
    ref = event.regarding
    given = {
        "kind": kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
        "apiVersion": api_version_of(kind),
        "resourceVersion": ref.resource_version,
    }
    return {name: value for name, value in given.items() if value}
