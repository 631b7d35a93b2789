"""Runs the exec plugin of a kubeconfig and reads its answer. Called by `credentials`.

At a terminal the plugin may ask the user and wait. Without a terminal the plugin has a time limit, after
which it is killed with all its children. A plugin with `provideClusterInfo` gets a description of the
cluster.
Source: client-go `plugin/pkg/client/auth/exec/exec.go`, `tools/auth/exec/exec.go` and
`pkg/apis/clientauthentication` (Cluster), v1.36.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from berth_sdk.json.bounded import read_bounded_json

from berth_kube.kubeconfig import Entry

EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The name of the extension of a kubeconfig's cluster that is passed on unchanged."""


def cluster_of(entry: Entry, master: str) -> dict[str, Any]:
    """Return `spec.cluster` of the ExecCredential. `master`: a URL that overrides the file's server.

    Raises OSError for a certificate-authority that cannot be read.
    """
    cluster = entry.content["clusters"][0]["cluster"]
    authorities = entry.authorities
    if authorities is None and cluster.get("certificate-authority"):
        authorities = (entry.folder / cluster["certificate-authority"]).read_bytes()
    found: dict[str, Any] = {
        "server": master or cluster["server"],
        "tls-server-name": cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authorities or b"").decode(),
        "proxy-url": cluster.get("proxy-url"),
        "disable-compression": cluster.get("disable-compression"),
    }
    # Go leaves out empty fields, except `config`.
    return {**{name: value for name, value in found.items() if value}, "config": _extension(cluster)}


def _extension(cluster: Mapping[str, Any]) -> Any:
    listed = cluster.get("extensions")
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and item.get("name") == EXTENSION:
            return item.get("extension")
    return None


ANSWERS_WITHIN_S: Final = 30.0
"""The time limit, in seconds. client-go has none; a plugin that hangs would then block every request."""
_END_WITHIN_S: Final = 1.0
_QUOTED: Final = 300


class ExecPluginError(Exception):
    """The plugin gave no usable credentials. `str()` is one line that says why."""


async def run(plugin: Mapping[str, Any], cluster: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Run the plugin and return the `status` of its answer.

    `plugin`: `users[].user.exec` of a kubeconfig, checked. `cluster`: the cluster's description, if the
    plugin asks for it (`provideClusterInfo`); else None.

    Raises ExecPluginError.
    """
    may_ask = plugin.get("interactiveMode") != "Never" and sys.stdin is not None and sys.stdin.isatty()
    try:
        variables = {variable["name"]: variable["value"] for variable in plugin.get("env") or ()}
        spec: dict[str, Any] = {"interactive": may_ask}
        if cluster is not None:
            spec["cluster"] = cluster
        # YAML values that JSON lacks, such as a date in an extension, are passed as text.
        info = json.dumps(
            {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}, default=str
        )
        process = await asyncio.create_subprocess_exec(
            plugin["command"],
            *(plugin.get("args") or ()),
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": info},
            stdin=None if may_ask else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A separate session can be killed as a whole, but has no terminal.
            start_new_session=not may_ask,
        )
    except (OSError, TypeError, ValueError) as err:
        raise ExecPluginError(str(err)) from err
    try:
        # Both outputs at once: a plugin that fills one pipe must not wait for the other to be read.
        async with asyncio.timeout(None if may_ask else ANSWERS_WITHIN_S):
            out, complaints = await process.communicate()
    except TimeoutError as err:
        raise ExecPluginError(f"no answer within {ANSWERS_WITHIN_S:g} s, so it was killed") from err
    finally:
        if process.returncode is None or process.stdout is None or not process.stdout.at_eof():
            with suppress(ProcessLookupError, PermissionError):
                (os.kill if may_ask else os.killpg)(process.pid, signal.SIGKILL)
            # No other code reaps the process. Its children may hold its output open longer.
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_WITHIN_S):
                    await process.wait()
    if process.returncode:
        said = " ".join(complaints.decode(errors="replace").split())[:_QUOTED]
        raise ExecPluginError(f"it ended with {process.returncode}" + (f": {said}" if said else ""))
    return _status(out, plugin["apiVersion"])


def _status(out: bytes, version: str) -> Mapping[str, Any]:
    try:
        answer = read_bounded_json(out)
    except ValueError as err:
        raise ExecPluginError(f"its answer is not JSON: {err}") from err
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise ExecPluginError("its answer is not an ExecCredential")
    if answer.get("apiVersion") != version:
        raise ExecPluginError(f"it answers in {answer.get('apiVersion')!r}, not in {version}")
    status = answer.get("status")
    if not isinstance(status, dict):
        raise ExecPluginError("its answer has no status")
    return status
