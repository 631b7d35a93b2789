"""`berth bench`: its line of JSON, its table, its exit codes, and its child processes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench import command
from berth_bench.rendering.bench import plugins_text, results_text
from berth_bench.result import Figures, PluginFigures, Rate, Result
from berth_bench.running import Settings, WorkloadError
from berth_bench.scheduler_perf import upstream
from berth_bench.workload import Workload

from .conftest import Run, WriteCase, measured, nodes

FIELDS = [
    "workload",
    "nodes",
    "pods",
    "bound",
    "pods_per_s",
    "nominated",
    "nominated_per_s",
    "cycle_ms",
    "plugins",
    "cpu_ms_per_pod",
    "children_cpu_ms_per_pod",
    "peak_rss_mb",
    "nodes_evaluated_per_pod",
    "threshold",
    "ratio",
    "command",
]


def result(name: str = "C/w", **more: Any) -> Result:
    plugin = PluginFigures(
        plugin="P", point="Filter", calls=4, total_ms=2.0, bytes_sent=400, bytes_received=80
    )
    figures = Figures(
        nodes=5,
        pods=4,
        bound=4,
        nominated=0,
        nominated_per_s=0.0,
        rate=Rate(avg=100.04, p50=90.0, p99=120.0),
        cycle_p50_ms=0.5,
        cycle_p99_ms=1.25,
        plugins=(plugin,),
        cpu_ms_per_pod=0.8,
        children_cpu_ms_per_pod=0.0,
        peak_rss_mb=70.26,
        nodes_evaluated_per_pod=5.0,
    )
    return Result(workload=name, figures=figures, **more)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Workload, Settings]]:
    """Record the workloads that would run; each returns `result` instead."""
    asked: list[tuple[Workload, Settings]] = []

    def instead(workload: Workload, settings: Settings) -> Result:
        asked.append((workload, settings))
        if workload.name.endswith("bad"):
            raise WorkloadError(f"{workload.name}: broken")
        return result(workload.name, threshold=workload.threshold, notes=workload.notes)

    monkeypatch.setattr(command, "run_in_child", instead)
    return asked


def test_one_line_of_json_has_exactly_these_fields() -> None:
    line = result(threshold=50.0).as_json("berth bench own C/w")
    assert list(line) == FIELDS
    assert line["pods_per_s"] == {"avg": 100.0, "p50": 90.0, "p99": 120.0}
    assert line["cycle_ms"] == {"p50": 0.5, "p99": 1.25}
    assert line["plugins"] == [
        {
            "plugin": "P",
            "point": "Filter",
            "calls": 4,
            "ms_total": 2.0,
            "bytes_sent": 400,
            "bytes_received": 80,
        }
    ]
    assert (line["threshold"], line["ratio"], line["peak_rss_mb"]) == (50.0, 2.001, 70.3)
    assert (result().as_json("")["threshold"], result().as_json("")["ratio"]) == (None, None)


def test_nominations_have_columns_where_there_are_some() -> None:
    figures = replace(result().figures, nominated=3, nominated_per_s=40.06)
    preempting = replace(result("A/a"), figures=figures)
    assert preempting.as_json("")["nominated_per_s"] == 40.1
    header, first, second = results_text([preempting, result("B/b")]).splitlines()[:3]
    assert header.split()[-2:] == ["NOMINATED", "NOMINATED/S"]
    assert (first.split()[-2:], second.split()[-2:]) == (["3", "40"], ["-", "-"])


def test_table_has_a_row_per_workload_and_a_gpu_column_if_asked_for() -> None:
    text = results_text([result("A/a", threshold=50.0), result("B/b", notes=("gone",))])
    lines = text.splitlines()
    assert lines[0].split()[:4] == ["WORKLOAD", "NODES", "PODS", "BOUND"]
    assert " ".join(lines[1].split()) == "A/a 5 4 4 100 90 120 0.50 1.25 0.80 0.00 70 5 50 2.00"
    assert lines[2].split()[-2:] == ["-", "-"]
    assert lines[3] == "note (B/b): gone"
    with_gpus = results_text([result(gpu_share=0.98765)]).splitlines()
    assert (with_gpus[0].split()[-2:], with_gpus[1].split()[-2:]) == (["GPU", "USED"], ["98.77", "%"])
    many = results_text([result(name, notes=("x",)) for name in "abc"] + [result("d")])
    assert "note (a, b and 1 more): x" in many
    assert "100" in plugins_text(result()).splitlines()[-1].split()


def test_json_lines_repeat_the_command_that_makes_them(
    run: Run, write_case: WriteCase, seen: list[tuple[Workload, Settings]]
) -> None:
    file = str(write_case(nodes(1), measured(1)))
    done = run(
        "bench", "scheduler-perf", file, "-o", "json", "--remote", "NodeName,NodeResourcesFit", "--seed", "3"
    )
    assert done.exit_code == 0, done.stderr
    (line,) = done.stdout.splitlines()
    words = shlex.split(json.loads(line)["command"])
    expected = ["berth", "bench", "scheduler-perf", file, "--workload", "C/w", "--seed", "3"]
    assert words == [*expected, "--remote", "NodeName,NodeResourcesFit"]
    ((_, settings),) = seen
    assert (settings.remote, settings.seed) == (("NodeName", "NodeResourcesFit"), 3)


def test_gates_that_1_37_no_longer_has_need_the_version_that_has_them(
    run: Run, write_case: WriteCase, seen: list[tuple[Workload, Settings]]
) -> None:
    gates = {"SchedulerQueueingHints": True, "SidecarContainers": True}
    file = str(write_case(nodes(1), measured(1), featureGates=gates))
    done = run("bench", "scheduler-perf", file, "-o", "json", "--emulated-version", "1.36")
    assert done.exit_code == 0, done.stderr
    words = shlex.split(json.loads(done.stdout)["command"])
    assert words[-2:] == ["--emulated-version", "1.36"]
    ((_, settings),) = seen
    assert settings.emulated_version == "1.36"
    refused = run("bench", "scheduler-perf", file)
    assert (refused.exit_code, "SidecarContainers" in refused.stderr) == (2, True)


def test_files_may_be_names_of_kubernetes_own(
    run: Run, write_case: WriteCase, tmp_path: Path, seen: list[tuple[Workload, Settings]]
) -> None:
    area = tmp_path / "data" / upstream.VERSION / "misc"
    area.mkdir(parents=True)
    path = write_case(nodes(1), measured(1)).rename(area / "performance-config.yaml")
    (tmp_path / "pod.yaml").rename(area / "pod.yaml")
    data = ["--data", str(tmp_path / "data")]
    done = run("bench", "scheduler-perf", "misc", *data, "-o", "json", "--limit", "2.5")
    assert done.exit_code == 0, done.stderr
    words = shlex.split(json.loads(done.stdout)["command"])
    assert words[2:] == ["scheduler-perf", str(path), "--workload", "C/w", "--limit", "2.5"]
    assert run("bench", "scheduler-perf", *data).exit_code == 0
    assert [(workload.name, settings.limit_s) for workload, settings in seen] == [("C/w", 2.5), ("C/w", 0)]
    assert "there is no volumes: there are misc" in run("bench", "scheduler-perf", "volumes", *data).stderr
    missing = run("bench", "scheduler-perf", "--data", str(tmp_path / "no"))
    assert (missing.exit_code, "make scheduler-perf-data" in missing.stderr) == (2, True)


def test_every_workload_runs_with_each_configuration(
    run: Run, write_case: WriteCase, tmp_path: Path, seen: list[tuple[Workload, Settings]]
) -> None:
    file = str(write_case(nodes(1), measured(1)))
    configs = [str(tmp_path / name) for name in ("one.yaml", "two.yaml")]
    for path in configs:
        Path(path).write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        )
    arguments = ["bench", "scheduler-perf", file, "--config", configs[0], "--config", configs[1]]
    table = run(*arguments).stdout
    assert [settings.config for _, settings in seen] == configs
    assert [f"C/w ({path})" in table for path in configs] == [True, True]
    lines = [json.loads(line) for line in run(*arguments, "-o", "json").stdout.splitlines()]
    assert [line["workload"] for line in lines] == ["C/w", "C/w"]
    assert [shlex.split(line["command"])[-2:] for line in lines] == [["--config", path] for path in configs]


def test_configuration_of_standard_input_is_read_once_for_all_workloads(
    run: Run, write_case: WriteCase, seen: list[tuple[Workload, Settings]]
) -> None:
    files = [str(write_case(nodes(1), measured(1)))] * 2
    given = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    arguments = ["bench", "scheduler-perf", *files, "--config", "-"]
    assert run(*arguments, stdin=given).exit_code == 0
    assert [(settings.config, settings.standard_input) for _, settings in seen] == [("-", given)] * 2
    twice = run(*arguments, "--config", "-", stdin=given)
    assert (twice.exit_code, "--config - is given twice" in twice.stderr) == (2, True)
    bad = run(*arguments, stdin="kind: None")
    assert (bad.exit_code, bad.stderr.startswith("standard input")) == (2, True)


def test_yaml_is_a_document_per_workload(run: Run, seen: list[tuple[Workload, Settings]]) -> None:
    done = run("bench", "own", "Plain/100Nodes", "Plain/500Nodes", "-o", "yaml")
    documents = list(yaml.safe_load_all(done.stdout))
    assert [document["workload"] for document in documents] == ["Plain/100Nodes", "Plain/500Nodes"]
    assert list(documents[0]) == FIELDS


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["Plain/100Nodes", "-o", "json"], "`berth bench own Plain/100Nodes -o json`"),
        (["AntiAffinity/5000Nodes"], "`berth bench versus AntiAffinity/5000Nodes`"),
        (["Plain/5000Nodes"], "`berth bench own Plain/5000Nodes` or `berth bench versus Plain/5000Nodes`"),
        (["Plain/100Node"], "did you mean `berth bench own Plain/100Nodes`?"),
        (["no/such"], "berth bench own --list names them"),
    ],
)
def test_workload_given_as_a_command_is_an_error_that_says_what_to_type(
    run: Run, arguments: list[str], hint: str
) -> None:
    done = run("bench", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert hint in done.stderr


def test_bench_alone_runs_all_workloads_of_its_own(run: Run, seen: list[tuple[Workload, Settings]]) -> None:
    listed = run("bench", "own", "--list").stdout.split()
    done = run("bench")
    assert done.exit_code == 0
    assert [workload.name for workload, _ in seen] == listed
    assert all(name in done.stdout for name in listed)


def test_workload_that_fails_does_not_stop_the_others(
    run: Run, write_case: WriteCase, seen: list[tuple[Workload, Settings]]
) -> None:
    path = write_case(nodes(1), measured(1), name="bad")
    path.write_text(
        path.read_text() + path.read_text().replace("name: bad", "name: good").replace("name: C", "name: D")
    )
    done = run("bench", "scheduler-perf", str(path), "-o", "json")
    assert done.exit_code == 1
    assert "berth bench: C/bad: broken" in done.stderr
    assert [json.loads(line)["workload"] for line in done.stdout.splitlines()] == ["D/good"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(("scheduler-perf", "none.yaml"), "none.yaml: cannot be read", id="no file"),
        pytest.param(("openb", "--data", "nowhere"), "cannot be read: No such file", id="no data"),
        pytest.param(("own", "Plane/500Nodes"), "did you mean Plain/500Nodes", id="no workload"),
        pytest.param(
            ("own", "--profile", "x"), "--profile is for one run, but there are", id="profile of many"
        ),
        pytest.param(("own", "--dump-placements", "x"), "--dump-placements is for one run", id="placements"),
        pytest.param(
            ("own", "Plain/500Nodes", "--profile", "no/x"),
            "no/x cannot be written",
            id="no folder to write to",
        ),
        pytest.param(
            ("own", "Plain/500Nodes", "--dump-placements", "."), ". cannot be written", id="a folder, no file"
        ),
        pytest.param(("own", "--config", "none.yaml"), "none.yaml: cannot be read", id="no configuration"),
        pytest.param(("own", "--remote", "Fit"), "no profile enables it; enabled are", id="no such plugin"),
        pytest.param(("own", "--remote", "none:Fit"), "cannot be loaded", id="no such module"),
        pytest.param(("own", "--remote", "PodTopologySpread2"), "no profile enables it", id="not enabled"),
        pytest.param(("own", "--nodes", "0"), "0 is not in the range", id="no nodes"),
    ],
)
def test_bad_input_exits_with_2_and_runs_nothing(
    run: Run, arguments: tuple[str, ...], problem: str, seen: list[tuple[Workload, Settings]]
) -> None:
    done = run("bench", *arguments)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert seen == []


@pytest.mark.long
@pytest.mark.slow
def test_command_as_a_process_runs_each_workload_in_one_of_its_own(
    write_case: WriteCase, tmp_path: Path
) -> None:
    file = write_case(nodes(3), measured(4), featureGates={"GenericWorkload": True}, threshold=1)
    noisy = tmp_path / "noisy.py"
    noisy.write_text(
        "import os\nfrom berth_sdk import Plugin\n\nprint('hello')\n\n\nclass Noisy(Plugin):\n"
        "    def filter(self, state, pod, node):\n        print('pid', os.getpid())\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: Noisy}]}}}]\n---\n"
        "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "plugins: [{name: Noisy, inProcess: 'noisy:Noisy'}]\n"
    )
    placements = tmp_path / "placements.csv"
    arguments = ["bench", "scheduler-perf", str(file), "-o", "json", "--config", str(config), "--costs"]
    process = subprocess.Popen(
        [sys.executable, "-m", "berth_host", *arguments, "--dump-placements", str(placements)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=with_modules_of(tmp_path),
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    (line,) = out.splitlines()
    got = json.loads(line)
    assert list(got) == FIELDS
    assert (got["nodes"], got["pods"], got["bound"], got["threshold"]) == (3, 4, 4, 1.0)
    assert got["ratio"] == pytest.approx(got["pods_per_s"]["avg"], abs=0.06)
    assert got["nodes_evaluated_per_pod"] == 3.0
    assert "NodeResourcesFit" in err
    pids = {text.split()[1] for text in err.splitlines() if text.startswith("pid ")}
    assert len(pids) == 1
    assert str(process.pid) not in pids
    assert len([text for text in placements.read_text().splitlines() if text.split(",")[1]]) == 4


@pytest.fixture
def ctrl_c_counts() -> Iterator[None]:
    """Make processes started here react to SIGINT, even if a shell runs these tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def with_modules_of(folder: Path) -> dict[str, str]:
    """Return the environment of a command that can import from `folder` as well."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def children_of(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_bench(pid: int) -> bool:
    """Return True for the process of a workload; the other child of the command only tracks resources."""
    try:
        return "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def bench_child(pid: int, ends_s: float) -> int:
    """Wait for the process of a workload and return it."""
    while not (found := [child for child in children_of(pid) if is_bench(child)]):
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    return found[0]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_process_of_a_workload_ends_with_a_command_that_is_killed(write_case: WriteCase) -> None:
    file = write_case({"opcode": "sleep", "duration": "600s"}, measured(1))
    arguments = ["bench", "scheduler-perf", str(file)]
    process = subprocess.Popen([sys.executable, "-m", "berth_host", *arguments], stderr=subprocess.DEVNULL)
    ends_s = time.monotonic() + 120
    try:
        found = bench_child(process.pid, ends_s)
    finally:
        process.kill()
        process.wait()
    # Less than the workload takes: it ends because of its parent.
    while is_bench(found):
        assert time.monotonic() < ends_s
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_ctrl_c_ends_everything_without_a_traceback(
    write_case: WriteCase, tmp_path: Path, ctrl_c_counts: None
) -> None:
    ready = tmp_path / "ready.py"
    ready.write_text(
        "import sys\nfrom berth_sdk import Plugin\n\n\nclass Ready(Plugin):\n"
        "    def filter(self, state, pod, node):\n        print('under way', file=sys.stderr, flush=True)\n"
    )
    file = write_case(nodes(1), measured(1), {"opcode": "sleep", "duration": "600s"})
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{plugins: {filter: {enabled: [{name: Ready}]}}}]\n---\n"
        "apiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        "plugins: [{name: Ready, inProcess: 'ready:Ready'}]\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "berth_host", "bench", "scheduler-perf", str(file), "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        env=with_modules_of(tmp_path),
        start_new_session=True,  # a terminal's Ctrl-C reaches the whole group
    )
    try:
        assert process.stderr is not None
        while (line := process.stderr.readline()) and "under way" not in line:
            pass
        child = bench_child(process.pid, time.monotonic() + 120)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "berth: interrupted" in err
    assert "Traceback" not in err
    assert not is_bench(child)
