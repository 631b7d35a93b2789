"""RBAC rules -> single rights, and the API server's audit log -> the rights that a user needed.

For the tests that hold what the chart grants equal to what the host uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
AUDIT_POLICY: Final[Json] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
"""Every request of every service account, without bodies. A watch is logged when it begins."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource. `resource`: with `/SUBRESOURCE`; `name`: empty for any."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        of_group = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {of_group}{f' {self.name}' if self.name else ''}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of the log, with the answer's code."""

    right: Right
    namespace: str
    code: int


def rights_of(rule: Mapping[str, Any]) -> Iterator[Right]:
    """Yield the single rights that a rule grants."""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", ("",)):
                    yield Right(group, resource, verb, name)


def name_of(rule: Mapping[str, Any]) -> str:
    """Return a rule in a word, for the names of tests."""
    what = "+".join(rule["resources"])
    return f"{what}-of-one-name" if rule.get("resourceNames") else what


class AskedLog:
    """The audit log of one user, as it grows."""

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user
        self._offset = 0
        self.asked: list[Asked] = []
        """All that was read so far."""

    def read(self) -> list[Asked]:
        """Return the entries since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = list(_asked(map(json.loads, whole.splitlines()), self._user))
        self.asked += found
        return found


def _asked(events: Iterable[Json], user: str) -> Iterator[Asked]:
    for event in events:
        place = event.get("objectRef")
        if event["user"]["username"] != user or not place or not place.get("resource"):
            continue
        parts = (place["resource"], place.get("subresource"))
        right = Right(
            place.get("apiGroup", ""),
            "/".join(part for part in parts if part),
            event["verb"],
            place.get("name", ""),
        )
        code = int((event.get("responseStatus") or {}).get("code", 0))
        yield Asked(right, place.get("namespace", ""), code)
