"""The kit with a server of several plugins: each is examined, and each must keep to itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_sdk import Plugin, Pod, Status
from berth_sdk.__main__ import main
from berth_sdk.cycle_state import CycleState
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import state_pb2
from berth_sdk.serve.server import PluginServer
from support.conforming_plugin import ConformingPlugin
from support.kit import failures, report_of, result_of

CASES = ("plugins.calls", "plugins.reservations", "filter.repeat", "reconcile.repeat")


class Two(ConformingPlugin):
    names: ClassVar[tuple[str, ...]] = ("Kit", "Second")


def test_kit_passes_two_plugins_that_keep_to_themselves(tmp_path: Path) -> None:
    report = report_of(Two(), tmp_path, "binding", *CASES)
    assert failures(report) == {}
    assert [result_of(report, case_id)[0] for case_id in CASES] == ["pass"] * 4


def test_a_plugin_alone_in_its_process_has_no_such_cases(tmp_path: Path) -> None:
    report = report_of(ConformingPlugin(), tmp_path, "binding", *CASES)
    assert [one.case.id for one in report.results] == ["filter.repeat", "reconcile.repeat"]


class AnswersOfTheLastPlugin(Two):
    """Keeps the answers of a cycle by the cycle alone."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, set[str]] = {}

    def Filter(self, request: Any) -> Any:  # noqa: N802
        answer = super().Filter(request)
        asked = self.asked.setdefault(request.ctx.cycle_id, set())
        asked.add(request.ctx.plugin)
        if len(asked) > 1:
            answer.verdicts.rejected.add(nodes=pb.NodeSet(bitmap=b"\1"))
        return answer


class OneListForAll(Two):
    """Releases the reservations of every plugin that a list of one does not name."""

    def Reconcile(self, pages: list[Any]) -> Any:  # noqa: N802
        listed = {one.cycle_id for page in pages for one in page.live}
        answer = super().Reconcile(pages)
        self.reserved = {key: node for key, node in self.reserved.items() if key[1] in listed}
        return answer


class OneUnreserveForAll(Two):
    """Gives back the reservations of every plugin in a cycle."""

    def Unreserve(self, request: Any) -> Any:  # noqa: N802
        done = {item.cycle_id for item in request.items}
        self.reserved = {key: node for key, node in self.reserved.items() if key[1] not in done}
        return super().Unreserve(request)

    def takes_up(self, plugin: str, live: state_pb2.LiveReservation) -> bool:
        return (plugin, live.cycle_id) in self.reserved


@pytest.mark.parametrize(
    ("plugin", "case_id", "detail"),
    [
        (AnswersOfTheLastPlugin, "plugins.calls", "Filter of Kit gets another answer when the host asks"),
        (OneListForAll, "plugins.reservations", "Reconcile of Second ends a reservation of Kit"),
        (OneUnreserveForAll, "plugins.reservations", "Reconcile of Second ends a reservation of Kit"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_kit_names_plugins_that_get_into_each_others_way(
    plugin: type[Two], case_id: str, detail: str, tmp_path: Path
) -> None:
    found = failures(report_of(plugin(), tmp_path, "binding", *CASES))
    assert list(found) == [case_id]
    assert detail in found[case_id]


# --- with the SDK, by the command ---------------------------------------------------------------------------


class Holds(Plugin):
    """Reserves, and rejects nothing."""

    def __init__(self, args: Mapping[str, Any], handle: Any) -> None:
        super().__init__(args, handle)
        self.held: set[str] = set()

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status:
        return Status.success()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.held.add(state.cycle_id)
        return Status.success()

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.held.discard(state.cycle_id)


class HoldsMore(Holds):
    """The same under another name."""


@pytest.fixture
def address(tmp_path: Path) -> Any:
    server = PluginServer({"Holds": Holds, "HoldsMore": HoldsMore})
    yield server.listen(f"unix:{tmp_path / 'kit.sock'}")
    server.stop(0.2)


@pytest.mark.long
def test_kit_passes_two_plugins_of_the_sdk(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", address, "--json", "--plugin", "HoldsMore"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["plugin"] == "HoldsMore"
    results = {one["id"]: one["result"] for one in report["cases"]}
    assert (results["plugins.calls"], results["plugins.reservations"]) == ("pass", "pass")


@pytest.mark.long
def test_each_plugin_has_its_report_and_its_verdict(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "kit.xml"
    assert main(["conformance", address, "--level", "core", "--json", "--junit", str(junit)]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [report["plugin"] for report in reports] == ["Holds", "HoldsMore"]
    keys = ["endpoint", "plugin", "points", "cases", "passed", "failed", "skipped"]
    assert all(list(report) == keys and report["passed"] > 15 for report in reports)
    assert junit.read_text().count("<testsuite ") == 2
    assert main(["conformance", address, "--level", "core"]) == 0
    verdicts = [line for line in capsys.readouterr().out.splitlines() if "conformant" in line]
    assert [line.partition(":")[0] for line in verdicts] == ["Holds", "HoldsMore"]


class SecondIsWrong(Two):
    def Score(self, request: Any) -> Any:  # noqa: N802
        answer = super().Score(request)
        if request.ctx.plugin == "Second":
            answer.scores.dense[0] = 101
        return answer


@pytest.mark.long
def test_one_wrong_plugin_of_two_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SecondIsWrong().serving(tmp_path) as address:
        assert main(["conformance", address, "--level", "core", "--json"]) == 1
        first, second = json.loads(capsys.readouterr().out)
        assert main(["conformance", address, "--level", "core", "--plugin", "Kit"]) == 0
    assert (first["failed"], second["plugin"]) == (0, "Second")
    assert second["failed"] > 0


def test_arguments_are_those_of_one_plugin(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", address, "--args", "{}"]) == 2
    assert "choose it with --plugin (Holds, HoldsMore)" in capsys.readouterr().err
