"""Answers that are made to stop the kit: it names the case, in time, and goes on."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_sdk.__main__ import main
from berth_sdk.conformance import checks, run, stateful
from berth_sdk.conformance.case import BrokenError, Subject
from berth_sdk.conformance.host import Host, Target
from berth_sdk.conformance.world import WorldNode
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import scheduling_pb2 as scheduling
from berth_sdk.wire.frames import FEATURE, NUMBERS, Kind, framed_path
from support.conforming_plugin import ConformingPlugin

HUGE = 100 * 1024 * 1024
MEASURED = """
import sys
from berth_sdk.__main__ import main
from berth_sdk.conformance import run

def peak_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

before = peak_kib()
code = main(["conformance", *sys.argv[1:]])
print(peak_kib() - before, file=sys.stderr)
sys.exit(code)
"""
"""The kit in a process of its own; the last line of its standard error is how its memory grew, in KiB."""
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


def claims_100_mb(connection: socket.socket) -> None:
    """Send the header of an answer of 100 MB, and bytes as long as somebody reads them."""
    connection.recv(65536)
    with suppress(OSError):
        connection.sendall(struct.pack(">IBB", HUGE, Kind.CALL.value, NUMBERS["Filter"]))
        for _ in range(HUGE // 65536):
            connection.sendall(bytes(65536))
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
        (claims_100_mb, ("the instance sent bytes that are no frame",)),
    ],
    ids=["closes", "trickles", "claims 100 MB"],
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


class PermitsIn100MB(ConformingPlugin):
    """Answers each first Permit of a cycle with 100 MB."""

    points: ClassVar[tuple[str, ...]] = ("PERMIT",)
    is_snapshot: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def Permit(self, request: Any) -> Any:  # noqa: N802
        answer = super().Permit(request)
        if request.ctx.cycle_id not in self.seen:
            self.seen.add(request.ctx.cycle_id)
            answer.ctx.plugin_token = bytes(HUGE)
        return answer


@pytest.mark.long
def test_answers_of_100_mb_fail_their_cases_and_leave_the_memory_of_the_kit_small(tmp_path: Path) -> None:
    with PermitsIn100MB().serving(tmp_path) as address:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, address, "--json"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    report = json.loads(done.stdout)
    failed = {one["id"]: one["detail"] for one in report["cases"] if one["result"] == "fail"}
    assert {"permit.answer", "permit.duplicate", "permit.at-once"} <= set(failed)
    assert all(case_id.startswith(("permit.", "attachment.")) for case_id in failed)
    assert "the answer to Permit is larger than max_message_bytes (4194304 bytes)" in failed["permit.answer"]
    assert report["skipped"] < report["passed"], "the kit goes on"
    grown_kib = int(done.stderr.splitlines()[-1])
    assert grown_kib * 1024 < HUGE // 2


class IntroducesItselfIn100MB(ConformingPlugin):
    def Handshake(self, request: Any) -> Any:  # noqa: N802
        answer = identity.HandshakeResponse()
        answer.CopyFrom(super().Handshake(request))
        answer.features.append("x" * HUGE)
        return answer


def test_a_handshake_of_100_mb_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with IntroducesItselfIn100MB().serving(tmp_path) as address:
        assert main(["conformance", address]) == 3
    assert "the answer to Handshake is larger than max_message_bytes" in capsys.readouterr().err


class RefusesAtLength(ConformingPlugin):
    def Configure(self, request: Any) -> Any:  # noqa: N802
        super().Configure(request)
        return identity.ConfigureResponse(error="wrong " * 500_000)


def test_a_detail_of_megabytes_is_cut(tmp_path: Path) -> None:
    with RefusesAtLength().serving(tmp_path) as address:
        target = Target(address)
        (subject,) = run.subjects(run.hello_of(target))
        report = run.run(target, subject, run.chosen(subject, "core"))
    found = {one.case.id: one.detail for one in report.results if one.result == "fail"}
    assert found["configure.accepted"].startswith("Configure refuses the arguments: wrong wrong")
    assert found["configure.accepted"].endswith("characters)")
    assert len(found["configure.accepted"]) < 2100
