"""The kit restarts the server in mid cycle, and names plugins that do not come through."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_sdk.__main__ import main
from berth_sdk.conformance import host, run
from berth_sdk.conformance.case import BrokenError
from berth_sdk.conformance.host import RestartError, Target
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from berth_sdk.plugin.v1 import state_pb2
from support.conforming_plugin import ConformingPlugin
from support.kit import failures, result_of
from support.waiting import PATIENCE_S

from .test_reserving import LosesItsToken, Slots


class Restarting(ExitStack):
    """A server that starts again as a new plugin at the same address. It stops at the end of the block."""

    def __init__(self, plugin: type[ConformingPlugin], folder: Path) -> None:
        super().__init__()
        self.plugin = plugin
        self.folder = folder
        self.starts = 0
        self.address = ""
        self.start()

    def start(self) -> None:
        self.close()
        self.starts += 1
        plugin = self.plugin()
        plugin.instance_id = plugin.hello.instance_id = f"instance-{self.starts}"
        self.address = self.enter_context(plugin.serving(self.folder))

    def report(self, restart: Callable[[], None] | None = None) -> run.Report:
        """Run the cases of restarts, and one before and after. `restart` None: `start`."""
        target = Target(self.address, restart=restart or self.start)
        subject, *_ = run.subjects(run.hello_of(target))
        ids = ("probe.answer", "restart.cycle", "restart.reservation", "reserve.answer")
        cases = [one for one in run.chosen(subject, "binding") if one.id in ids]
        return run.run(target, subject, cases, limit_s=PATIENCE_S)


@pytest.mark.parametrize("plugin", [ConformingPlugin, Slots], ids=lambda plugin: plugin.__name__)
def test_kit_passes_a_plugin_that_goes_on_after_a_restart(
    plugin: type[ConformingPlugin], tmp_path: Path
) -> None:
    with Restarting(plugin, tmp_path) as server:
        report = server.report()
    assert failures(report) == {}
    assert server.starts == 3
    assert result_of(report, "restart.cycle")[0] == result_of(report, "restart.reservation")[0] == "pass"


class NeedsTheFirstCall(ConformingPlugin):
    """Answers Score by what Filter left in its memory, and says MISSING_POD where there is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.filtered: set[str] = set()

    def Filter(self, request: Any) -> Any:  # noqa: N802
        self.filtered.add(request.ctx.cycle_id)
        return super().Filter(request)

    def Score(self, request: Any) -> Any:  # noqa: N802
        answer = super().Score(request)
        if request.ctx.cycle_id not in self.filtered:
            answer.ctx.missing.append(pb.MISSING_POD)
        return answer


class ForgetsAndKeeps(Slots):
    """Takes every slot up after a restart, and never gives them back."""

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        if (plugin, live.cycle_id) not in self.reserved:
            self.slots |= {("lost", str(number)): number for number in (1, 2, 3)}
            self.reserved |= dict.fromkeys(self.slots, live.node_name)
        return True


@pytest.mark.parametrize(
    ("plugin", "case_id", "detail"),
    [
        (NeedsTheFirstCall, "restart.cycle", "after a restart Score answers MISSING_POD"),
        (LosesItsToken, "restart.reservation", "answers MISSING_CYCLE"),
        (ForgetsAndKeeps, "restart.reservation", "before the restart is still held after its Unreserve"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_kit_names_what_a_restart_breaks(
    plugin: type[ConformingPlugin], case_id: str, detail: str, tmp_path: Path
) -> None:
    with Restarting(plugin, tmp_path) as server:
        found = failures(server.report())
    assert list(found) == [case_id]
    assert detail in found[case_id]


def test_a_server_that_does_not_restart_fails_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RestartError("no such unit")

    monkeypatch.setattr(host, "RESTARTED_S", 0.1)
    with Restarting(ConformingPlugin, tmp_path) as server:
        idle = failures(server.report(lambda: None))
        failed = failures(server.report(broken))
    assert "did not come back with a new instance_id in 0.1 s: its instance_id is" in idle["restart.cycle"]
    assert "must end the process, and start another one at the same address" in idle["restart.cycle"]
    assert failed["restart.cycle"] == "the server could not be restarted: no such unit"


class Reserves(ConformingPlugin):
    """A plugin with one point, so that few cases run."""

    points: ClassVar[tuple[str, ...]] = ("RESERVE",)
    is_snapshot: ClassVar[bool] = False


def test_command_restarts_the_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command asks the test by a named pipe, and the test restarts the server."""
    asked, done = tmp_path / "asked", tmp_path / "done"
    os.mkfifo(asked)
    os.mkfifo(done)
    with Restarting(Reserves, tmp_path) as server:

        def restart() -> None:
            while asked.read_text() == "restart":
                server.start()
                done.write_text("done")

        thread = threading.Thread(target=restart)
        thread.start()
        command = f"sh -c 'printf restart > {asked}; cat {done} > /dev/null'"
        code = main(["conformance", server.address, "--restart", command])
        asked.write_text("end")
        thread.join()
    out = capsys.readouterr().out
    assert "pass  restart.reservation" in out
    assert code == 0


@pytest.mark.long
def test_command_may_leave_a_server_behind_that_holds_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The child that is left ends when the test closes the pipe that it reads."""
    held = tmp_path / "held"
    os.mkfifo(held)
    command = f"sh -c 'cat {held} & exit 4'"
    with Reserves().serving(tmp_path) as address:
        keeper = threading.Thread(target=lambda: held.write_text(""))
        code = main(["conformance", address, "--restart", command])
        keeper.start()
        keeper.join()
    assert code == 1
    assert "ended with exit code 4: it printed nothing" in capfd.readouterr().out


@pytest.mark.parametrize("factor", ["0", "-1", "nan", "101"])
def test_time_factor_out_of_range_ends_with_2(factor: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "127.0.0.1:1", "--time-factor", factor]) == 2
    assert "write a number above 0, up to 100" in capsys.readouterr().err


def test_time_factor_multiplies_the_time_of_a_case_of_a_call_and_of_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "RESTARTED_S", 0.001)
    with Restarting(Reserves, tmp_path) as server:
        target = Target(server.address, restart=lambda: None, time_factor=50)
        (subject,) = run.subjects(run.hello_of(target))
        asked = host.Host(target, subject, 2.0)
        try:
            assert asked.limit_s == 100.0
            assert asked.begin("Probe", identity.ProbeRequest(), 1.0).given_s == 50.0
            with pytest.raises(BrokenError, match=r"new instance_id in 0\.05 s"):
                asked.restart()
        finally:
            asked.close()


@pytest.mark.long
def test_without_the_command_such_cases_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Reserves().serving(tmp_path) as address:
        assert main(["conformance", address]) == 0
    printed = capsys.readouterr().out
    assert "skip  restart.reservation: the kit cannot restart the server" in printed
    assert "pass  restart." not in printed


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("no-such-command", "there is no such command"),
        ("", "there is no such command"),
        ("a 'b", "No closing"),
    ],
    ids=["unknown", "empty", "quote"],
)
def test_wrong_command_ends_with_2(command: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "127.0.0.1:1", "--restart", command]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.long
def test_failing_command_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "sh -c 'echo busy >&2; exit 4'"
    with Reserves().serving(tmp_path) as address:
        assert main(["conformance", address, "--restart", command]) == 1
    assert "ended with exit code 4: busy" in capsys.readouterr().out
