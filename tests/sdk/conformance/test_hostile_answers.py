"""Answers that are made to stop the kit: it names the case, in time, and goes on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.conformance import checks, run, stateful
from berth_sdk.conformance.case import BrokenError, Subject
from berth_sdk.conformance.host import Host, Target
from berth_sdk.conformance.world import WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.wire.frames import FEATURE, framed_path
from support.conforming_plugin import ConformingPlugin

WITHIN = [WorldNode(index, f"n{index}", 1) for index in range(3)]


@pytest.fixture(params=[identity.NODE_MODE_NAMES, identity.NODE_MODE_SNAPSHOT], ids=["names", "snapshot"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Return a host that calls nobody."""
    plugin = identity.PluginDescriptor(name="Kit", node_mode=request.param)
    found = Host(Target("127.0.0.1:1"), Subject(plugin, identity.HandshakeResponse()), 1.0)
    yield found
    found.close()


def test_a_set_as_large_as_a_message_is_refused_at_its_first_stranger(host: Host) -> None:
    nodes = pb.NodeSet(bitmap=b"\xff" * 4_000_000)
    with pytest.raises(BrokenError, match="lists the index 3, which is no candidate"):
        checks.members("Filter", host, nodes, WITHIN, either=True)


def test_a_name_that_comes_twice_is_found_among_very_many(host: Host) -> None:
    nodes = pb.NodeSet(names=[f"{number:x}" for number in range(300_000)] + ["493df"])
    with pytest.raises(BrokenError, match="lists the node '493df' twice"):
        checks.members("Filter", host, nodes, WITHIN, either=True)


def test_a_patch_that_is_nested_without_end_is_refused(host: Host) -> None:
    cycle = host.cycle()
    patch = scheduling.ObjectPatch(resource="pods", merge_patch_json=b"[" * 200_000)
    patch.ref.CopyFrom(cycle.pod.ref)
    with pytest.raises(BrokenError, match="with JSON that is nested too deeply"):
        checks.patches("PreBind", host, [patch], cycle)


class OffersFrames(ConformingPlugin):
    def Handshake(self, request: Any) -> Any:  # noqa: N802
        answer = super().Handshake(request)
        answer.features.append(FEATURE)
        return answer


def closes(connection: socket.socket) -> None:
    """End the connection at once."""
    connection.close()


def trickles(connection: socket.socket) -> None:
    """Send the first bytes of a frame, and no more."""
    connection.sendall(b"\0\0")
    connection.recv(1)
    while connection.recv(65536):
        pass
    connection.close()


@contextmanager
def framed(folder: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Serve one connection beside the socket of the plugin."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(framed_path(folder / "kit.sock")))
        listener.listen()
        thread = threading.Thread(target=lambda: serve(listener.accept()[0]))
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize(
    ("serve", "detail"),
    [
        (closes, ("closed the framed connection", "the connection to the instance broke")),
        (trickles, ("no answer in a frame in 0.2 s",)),
    ],
    ids=["closes", "trickles"],
)
def test_a_framed_socket_without_answers_fails_its_case(
    serve: Callable[[socket.socket], None],
    detail: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stateful, "FRAME_S", 0.2)
    with OffersFrames().serving(tmp_path) as address, framed(tmp_path, serve):
        target = Target(address)
        (subject,) = run.subjects(run.hello_of(target))
        cases = [one for one in run.chosen(subject, "stateful") if one.id in ("frames.answer", "state.full")]
        report = run.run(target, subject, cases)
    results = {one.case.id: one for one in report.results}
    assert results["state.full"].result == "pass"
    assert results["frames.answer"].result == "fail"
    assert any(text in results["frames.answer"].detail for text in detail)
