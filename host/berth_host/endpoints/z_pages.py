"""`/statusz` and `/flagz`: the running program and its flags, as text and as `config.k8s.io` objects.

Source: component-base `zpages/statusz` and `zpages/flagz`, v1.36.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from berth_host.endpoints.answer import Answer, Request, as_json, not_acceptable, text

COMPONENT: Final = "berth"
KUBERNETES_MINOR: Final = "1.36"
"""The kube-scheduler whose behaviour this build has."""
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)
_GROUP: Final = "config.k8s.io"
_VERSIONS: Final = ("v1beta1", "v1alpha1")


class Statusz:
    """`paths`: the server's other paths. `now_s`: Unix seconds."""

    def __init__(
        self, started_s: float, paths: Callable[[], Sequence[str]], now_s: Callable[[], float] = time.time
    ) -> None:
        self._started_s = started_s
        self._paths = paths
        self._now_s = now_s

    async def answer(self, request: Request) -> Answer:
        """As text, or as a Statusz object where that is asked for."""
        up_s = int(self._now_s() - self._started_s)
        python = platform.python_version()
        version = _object_version(request.accept, "Statusz")
        if version is None:
            return not_acceptable()
        if version:
            return _object(
                "Statusz",
                version,
                {
                    "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started_s)),
                    "uptimeSeconds": up_s,
                    "goVersion": f"python{python}",
                    "binaryVersion": KUBERNETES_MINOR,
                    "emulationVersion": KUBERNETES_MINOR,
                    "paths": list(self._paths()),
                },
            )
        started = time.strftime("%a %b %e %H:%M:%S UTC %Y", time.gmtime(self._started_s))
        rows = {
            "Started": started,
            "Up": f"{up_s // 3600} hr {up_s // 60 % 60:02d} min {up_s % 60:02d} sec",
            "Python version": python,
            "Binary version": KUBERNETES_MINOR,
            "Emulation version": KUBERNETES_MINOR,
            "Paths": " ".join(self._paths()),
        }
        lines = "".join(f"{name}  {value}\n" for name, value in rows.items())
        return text(f"\n{COMPONENT} statusz\n{_WARNING}\n\n{lines}", sniff=True)


class Flagz:
    """`flags`: every flag and its value as text, sorted by name."""

    def __init__(self, flags: Mapping[str, str]) -> None:
        self._flags = dict(sorted(flags.items()))

    async def answer(self, request: Request) -> Answer:
        """As text, or as a Flagz object where that is asked for."""
        version = _object_version(request.accept, "Flagz")
        if version is None:
            return not_acceptable()
        if version:
            return _object("Flagz", version, {"flags": self._flags})
        lines = "".join(f"{name}: {value}\n" for name, value in self._flags.items())
        return text(f"\n{COMPONENT} flagz\n{_WARNING}\n{lines}", sniff=True)


def _object_version(accept: str, kind: str) -> str | None:
    """Empty for text, the version of the object that is asked for, None where neither can be had."""
    if not accept:
        return ""
    for media_type in accept.split(","):
        name, *parameters = (part.strip() for part in media_type.split(";"))
        given = dict(part.partition("=")[::2] for part in parameters)
        if name in ("text/plain", "text/*", "*/*"):
            return ""
        if name != "application/json" or given.get("as") != kind or given.get("g") != _GROUP:
            continue
        if given.get("v") in _VERSIONS:
            return given["v"]
    return None


def _object(kind: str, version: str, fields: Mapping[str, Any]) -> Answer:
    value = {
        "kind": kind,
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": {"name": COMPONENT},
        **fields,
    }
    return as_json(value, content_type=f"application/json;g={_GROUP};v={version};as={kind}")
