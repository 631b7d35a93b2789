"""Audit lines of attachments to real servers: attached, replaced, detached and refused instances."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_host.attach import retrying
from berth_host.attach.audit import digest
from berth_host.attach.state import State
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.runtime.descriptor import Descriptor, describe
from berth_sdk.serve.server import PluginServer
from structlog.testing import capture_logs
from support.attached import AttachedHost, at_socket, attached_host
from support.echo_plugin import Echo
from support.waiting import until


@pytest.fixture(autouse=True)
def back_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_S", 0.02)
    monkeypatch.setattr(retrying, "MAX_S", 0.05)


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[PluginServer]:
    server = PluginServer({"Echo": Echo})
    try:
        server.listen(f"unix://{path}")
        yield server
    finally:
        await asyncio.to_thread(server.stop, 0.5)


def state(host: AttachedHost) -> State:
    return host.attachments.places[0].state


def audited(lines: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(line) for line in lines if str(line["event"]).startswith("audit.")]


async def test_audit_lines_name_each_instance_its_predecessor_and_why_it_was_detached(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    own = {"place": f"unix://{path}", "peer_uid": os.getuid(), "peer_pid": os.getpid(), "log_level": "info"}
    descriptor = describe(Echo, "Echo")
    what = {
        "name": "Echo",
        "version": descriptor.version,
        "digest": digest(descriptor),
        "points": [point.config_name for point in descriptor.points],
    }
    with capture_logs() as lines:
        async with served(path) as first:
            attaching = attached_host(at_socket(path, "Echo"))
            host = await attaching.__aenter__()
        try:
            await until(lambda: state(host) is State.BACKOFF)
            async with served(path) as second:
                await until(lambda: state(host) is State.ACTIVE)
                await attaching.__aexit__(None, None, None)
        finally:
            await host.attachments.stop()
    came, went, came_after, went_after = audited(lines)
    one, two = first.instance.instance_id, second.instance.instance_id
    assert came == own | {"event": "audit.attached", "instance_id": one, "replaces": "", "plugins": [what]}
    assert went["reason"]
    assert went == own | {
        "event": "audit.detached",
        "instance_id": one,
        "plugins": ["Echo"],
        "reason": went["reason"],
    }
    assert (came_after["instance_id"], came_after["replaces"]) == (two, one)
    assert (went_after["instance_id"], went_after["reason"]) == (two, "the host stops")


async def test_a_refused_peer_is_logged_once_for_all_tries(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = folder / "p.sock"
    with capture_logs() as lines:
        async with served(path):
            folder.chmod(0o777)
            async with attached_host(at_socket(path, "Echo"), patience_s=0.0) as host:
                await until(lambda: host.attachments.places[0].backoff.failures >= 4)
    (line,) = audited(lines)
    assert (line["event"], line["log_level"]) == ("audit.refused", "warning")
    assert line["reason"] == f"any user may replace {path}: chmod 700 {folder}"


async def test_an_instance_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with capture_logs() as lines:
        async with served(path), attached_host(at_socket(path, "Other"), patience_s=0.0) as host:
            await until(lambda: state(host) is State.REJECTED)
    (line,) = audited(lines)
    assert (line["event"], line["peer_pid"]) == ("audit.refused", os.getpid())
    assert "the instance serves Echo" in line["reason"]


async def test_an_absent_plugin_is_not_in_the_audit_log(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with attached_host(at_socket(tmp_path / "p.sock", "Echo"), patience_s=0.0) as host:
            await until(lambda: host.attachments.places[0].backoff.failures >= 2)
    assert audited(lines) == []


def test_the_digest_is_that_of_the_declaration() -> None:
    one = Descriptor(name="A", version="1", points=(ExtensionPoint.FILTER,))
    assert digest(one) == digest(Descriptor(name="A", version="1", points=(ExtensionPoint.FILTER,)))
    others = [
        Descriptor(name="A", version="2", points=(ExtensionPoint.FILTER,)),
        Descriptor(name="A", version="1", points=(ExtensionPoint.SCORE,)),
    ]
    assert len({digest(item) for item in (one, *others)}) == 3
