"""Rules that did not run: commands with plugins that die, lack a point, come too late or never start."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from berth_host.metrics.plugin_stats import CallStats
from berth_sim.commands import lapses
from berth_sim.commands.strictness import conclude
from support.manifest_objects import node_object, pod_object

from .conftest import Run, Write

PLUGINS = """
import os
import time

from berth_sdk.extension_points import Plugin
from berth_sdk.results import PermitResult
from berth_sdk.status import Status


class Dies(Plugin):
    def filter(self, state, pod, node):
        os._exit(3)


class DiesOnce(Plugin):
    def filter(self, state, pod, node):
        if pod.name == "odd":
            os._exit(3)
        return Status.unschedulable("closed") if node.name == "closed" else None


class Slow(Plugin):
    def filter(self, state, pod, node):
        time.sleep(0.4)


class Faulty(Plugin):
    def filter(self, state, pod, node):
        raise ValueError("no such GPU")


class Decides(Plugin):
    def permit(self, state, pod, node_name):
        import threading

        def allow():
            # The host may not have taken the answer yet: it lists the pod once it has.
            for _ in range(1000):
                for waiting in self.handle.waiting_pods(only_mine=True):
                    self.handle.allow(waiting)
                    return
                time.sleep(0.01)

        threading.Timer(0.2, allow).start()
        return PermitResult.wait(30.0)
"""


@pytest.fixture
def config(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a configuration with one class of PLUGINS as a child, at a point, with further fields."""
    (tmp_path / "lapsing.py").write_text(PLUGINS)
    monkeypatch.chdir(tmp_path)

    def made(name: str, point: str = "filter", module: str = "lapsing", **fields: Any) -> str:
        enabled = {point: {"enabled": [{"name": name}]}}
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "plugins": enabled}],
        }
        command = [sys.executable, "-m", "berth_sdk", "serve", f"{module}:{name}"]
        own = {
            "apiVersion": "config.berth.io/v1alpha1",
            "kind": "BerthConfiguration",
            "plugins": [{"name": name, "command": command, **fields}],
        }
        return write(scheduler, own, name="config.yaml")

    return made


def a_cluster(write: Write, *pods: str) -> str:
    return write(node_object("open"), node_object("closed"), *(pod_object(name) for name in pods))


HELD_LINE = "some calls of plugins failed, and their pods were tried again (see the warnings above)"
LAST_LINE = "some rules of the configuration did not always run (see the warnings above)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pods"),
    [("Dies", ("a", "b", "c")), pytest.param("DiesOnce", ("a", "odd", "b"), marks=pytest.mark.long)],
)
def test_child_that_dies_in_a_call_ends_the_run_soon_with_a_warning(
    run: Run, write: Write, config: Any, name: str, pods: tuple[str, ...]
) -> None:
    path = a_cluster(write, *pods)
    result = run("simulate", path, "--config", config(name), "--costs", "-o", "json", "--no-strict")
    assert result.exit_code == 0
    # Five losses, each followed by a pause of at most 1, 2, 4, 8 and 16 s.
    assert json.loads(result.stdout)["summary"]["seconds"] < 50
    # At the end of the run, the plugin may be attached again or not.
    assert result.stderr.splitlines()[-1].startswith((LAST_LINE, HELD_LINE))
    assert f"waiting for plugin {name} (" in result.stderr.splitlines()[0]
    (warned,) = (line for line in result.stderr.splitlines() if f"plugin {name} failed in" in line)
    (costs,) = (line for line in result.stderr.splitlines() if line.startswith(name))
    failed, calls = warned.split("failed in ")[1].split(" calls")[0].split(" of ")
    assert costs.split()[-1] == failed
    assert costs.split()[4] == calls


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("name", "point", "module", "words"),
    [
        ("Slow", "filter", "lapsing", "failed in 1 of 1 calls of Filter"),
        ("Faulty", "filter", "lapsing", "failed in"),
        ("Faulty", "score", "lapsing", "does not implement score"),
        ("Faulty", "filter", "missing", "is not attached"),
    ],
    ids=["late", "raises", "lacks the point", "does not start"],
)
def test_lapse_is_exit_code_4_with_strict_and_the_last_line_without(
    run: Run, write: Write, config: Any, name: str, point: str, module: str, words: str
) -> None:
    fields = {"points": {"filter": {"policy": "Ignore", "deadline": "100ms"}}} if point == "filter" else {}
    arguments = ["simulate", a_cluster(write, "web"), "--config", config(name, point, module, **fields)]
    loose = run(arguments[0], "-f", *arguments[1:], "--no-strict")
    assert loose.exit_code == 0, loose.stderr
    assert words in loose.stderr
    assert loose.stderr.splitlines()[-1].startswith(LAST_LINE)
    strict = run(arguments[0], "-f", *arguments[1:], "--strict")
    assert strict.exit_code == 4


def test_why_exits_with_4_for_a_lapse_with_strict(run: Run, write: Write, config: Any) -> None:
    path = a_cluster(write, "web")
    assert run("why", "web", "-f", path, "--config", config("Faulty", "score"), "--strict").exit_code == 4


def test_required_plugin_that_does_not_start_holds_the_pods_and_is_exit_code_4(
    run: Run, write: Write, config: Any
) -> None:
    given = config("Faulty", module="missing", required=True)
    result = run("simulate", "-f", a_cluster(write, "web"), "--config", given, "-o", "json")
    assert result.exit_code == 4
    last = result.stderr.splitlines()[-1]
    assert last.startswith("required plugin Faulty never answered: ")
    assert "No module named 'missing'" in last
    assert last.endswith("or give --no-strict: exit code 4")
    assert [pod["pod"] for pod in json.loads(result.stdout)["pending"]] == ["default/web"]


def test_plugin_that_multi_point_enables_needs_no_points_in_the_file(
    run: Run, write: Write, config: Any
) -> None:
    given = config("DiesOnce", "multiPoint")
    result = run("simulate", "-f", a_cluster(write, "a", "b"), "--config", given, "-o", "json", "--strict")
    assert result.exit_code == 0, result.stderr
    assert {item["node"] for item in json.loads(result.stdout)["placements"]} == {"open"}


def test_decision_at_permit_that_comes_later_counts(run: Run, write: Write, config: Any) -> None:
    result = run(
        "simulate", "-f", a_cluster(write, "web"), "--config", config("Decides", "permit"), "-o", "json"
    )
    assert [item["pod"] for item in json.loads(result.stdout)["placements"]] == ["default/web"]


@pytest.mark.parametrize(
    ("objects", "gap"),
    [
        ([], "the input has neither a pod nor a node"),
        ([node_object("node-a")], "the input has no pod"),
        ([pod_object("web")], "the input has no node"),
        (
            [node_object("node-a"), pod_object("web", nodeName="gone")],
            "pod default/web is bound to node gone, which is not in the input",
        ),
        (
            [node_object("node-a"), pod_object("web"), {**pod_object("api"), "kind": "Pods"}],
            "Pods default/api is not a kind: did you mean Pod?",
        ),
    ],
)
def test_doubtful_input_is_a_warning_and_bad_input_with_strict(
    run: Run, write: Write, objects: list[dict[str, Any]], gap: str
) -> None:
    path = write(*objects)
    loose = run("simulate", "-f", path)
    assert loose.exit_code == 0
    assert f"  {gap}\n" in loose.stdout
    strict = run("simulate", "-f", path, "--strict")
    assert strict.exit_code == 2
    assert gap in strict.stderr
    assert strict.stdout == ""


@pytest.mark.parametrize(
    ("policies", "kept"),
    [({"Fail": 2}, True), ({"Fail": 2, "Ignore": 0}, True), ({"Fail": 1, "Ignore": 1}, False), ({}, False)],
    ids=["fail", "fail alone", "ignore too", "no policy"],
)
def test_failed_call_leaves_the_rules_in_force_only_where_no_pod_passed_without_it(
    policies: dict[str, int], kept: bool
) -> None:
    figures = CallStats(policies=Counter(policies))
    assert lapses.lets_none_pass("Filter", figures) is kept
    assert not lapses.lets_none_pass("SortKeys", figures)
    assert lapses.lets_none_pass("Unreserve", figures)


def test_last_line_says_whether_the_rules_hold(capsys: pytest.CaptureFixture[str]) -> None:
    harmless = f"plugin Demo failed in 1 of 9 calls of Filter; {lapses.KEPT}"
    conclude([harmless], strict=False)
    conclude([harmless, "plugin Other is absent"], strict=False)
    first, second = capsys.readouterr().err.splitlines()
    assert first == (f"{HELD_LINE}: the rules hold; with --strict this is exit code 4")
    assert second.startswith(LAST_LINE)


def test_plugin_in_the_hosts_process_that_answers_late_is_a_remark_and_no_lapse() -> None:
    stats = SimpleNamespace(calls=3, failed=0, overruns=1)
    host = SimpleNamespace(
        attachments=SimpleNamespace(attached_places=SimpleNamespace(conditions=lambda: ())),
        plugin_stats=lambda: {"Slow": {"Filter": stats}},
    )
    assert lapses.lapses_of(cast("Any", host)) == []
    assert lapses.remarks_of(cast("Any", host)) == ["plugin Slow answered late in 1 of 3 calls of Filter"]
