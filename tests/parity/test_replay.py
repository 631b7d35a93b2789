"""The recorded decisions of kube-scheduler 1.36, 1.37 and 1.38, and the tool that replays them."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berth_host.cycle import schedule_one
from berth_host.framework import score_table
from berth_host.framework.asked import Asked
from berth_host.model.node_statuses import NodeStatuses
from berth_host.plugins.registry import ClassRegistry
from berth_host.rpc import scores
from berth_plugins.cel import pieces, planner
from berth_plugins.dynamic_resources import allocator
from berth_plugins.node_resources.fit import Demand
from berth_sdk import slices
from berth_sdk.tables import NodeColumns
from parity.replay import main, replay
from support.decision_records import first_difference, read_records
from support.served import default_plugin_server

GOLDEN = Path(__file__).parent / "golden"
LATER = {version: Path(__file__).parent / f"golden_{version}" for version in ("1.37", "1.38")}
CATEGORIES = sorted(file.name.removesuffix(".jsonl.gz") for file in GOLDEN.glob("*.jsonl.gz"))
EVERY = 16
"""`make test` replays the first record of so many with all plugins served; `make test-all` replays all."""
CATEGORIES_OF = [
    (version, file.name.removesuffix(".jsonl.gz"))
    for version, golden in LATER.items()
    for file in sorted(golden.glob("*.jsonl.gz"))
]
QUICK = 1
"""Of each category of a later version, the number of records that `make test` replays."""
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve all default plugins from a process; return its endpoint."""
    with default_plugin_server(tmp_path_factory.mktemp("plugins")) as endpoint:
        yield endpoint


def records_of(category: str, golden: Path = GOLDEN) -> list[Json]:
    lines = gzip.decompress((golden / f"{category}.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def write(folder: Path, records: list[Json], name: str = "some.jsonl") -> Path:
    folder.joinpath(name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_every_category_is_here() -> None:
    assert CATEGORIES == [
        "balanced",
        "declared-features",
        "default-spread",
        "dra",
        "host-ports",
        "images",
        "inter-pod-affinity",
        "large",
        "mixed",
        "node-affinity",
        "node-basic",
        "nominated",
        "preemption",
        "preemption-select",
        "queue",
        "queue-preempt",
        "resource-strategies",
        "resources",
        "taints",
        "ties",
        "topology-spread",
        "volumes",
    ]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("category", CATEGORIES)
def test_host_decides_as_recorded(category: str) -> None:
    records = records_of(category)
    done = replay(records)
    assert done.total.first_difference is None
    assert done.total.identical == len(records) > 0


def test_devices_are_the_same_when_others_get_their_turn_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (pieces, planner):
        monkeypatch.setattr(module, "PIECE", 3)
    # With a turn at every step, a search may take longer than it is given, for all that it finds the same.
    monkeypatch.setattr(allocator, "monotonic_s", lambda: 0.0)
    ends = slices._do_slice
    divided = 0

    def counted(*args: Any) -> None:
        nonlocal divided
        ends(*args)
        divided += 1

    monkeypatch.setattr(slices, "_do_slice", counted)
    monkeypatch.setattr(slices, "_PIECES", range(1))
    monkeypatch.setattr(
        slices.in_slices, "__kwdefaults__", {**(slices.in_slices.__kwdefaults__ or {}), "slice_s": 0.0}
    )
    records = records_of("dra")
    assert replay(records).total.identical == len(records) > 0
    assert divided > 10 * len(records)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.long])])
@pytest.mark.parametrize("category", CATEGORIES)
def test_host_decides_the_same_with_all_plugins_remote(category: str, every: int, plugin_server: str) -> None:
    records = records_of(category)[::every]
    done = replay(records, plugin_server)
    assert done.total.first_difference is None
    assert done.total.identical == len(records) > 0


def assert_decides_as(version: str, records: list[Json], endpoint: str) -> None:
    done = replay(records, endpoint, emulated_version=version)
    assert done.total.first_difference is None
    assert done.total.identical == len(records) > 0


@pytest.mark.parametrize(("version", "count"), [("1.37", 90), ("1.38", 91)])
def test_every_category_of_a_later_version_is_here(version: str, count: int) -> None:
    categories = [category for of, category in CATEGORIES_OF if of == version]
    assert sum(len(records_of(category, LATER[version])) for category in categories) == count
    new = f"v{version.replace('.', '')}-"
    assert {name for name in categories if not name.startswith(new)} < set(CATEGORIES)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(("version", "category"), CATEGORIES_OF)
def test_host_decides_as_a_later_version(version: str, category: str, plugin_server: str) -> None:
    records = records_of(category, LATER[version])[:QUICK]
    for endpoint in ("", plugin_server):
        assert_decides_as(version, records, endpoint)


@pytest.mark.long
@pytest.mark.parametrize(("version", "category"), CATEGORIES_OF)
def test_host_decides_all_as_a_later_version(version: str, category: str, plugin_server: str) -> None:
    records = records_of(category, LATER[version])
    for endpoint in ("", plugin_server):
        assert_decides_as(version, records, endpoint)


def test_1_36_decides_otherwise() -> None:
    records = [
        record
        for category in ("images", "node-basic", "v137-device-taint-rules", "v137-preemption-text")
        for record in records_of(category, LATER["1.37"])[:1]
    ]
    assert replay(records).total.identical == 0


def test_1_37_decides_otherwise_than_1_38() -> None:
    records = [
        record
        for category in ("mixed", "preemption", "resources", "v138-pod-level-score")
        for record in records_of(category, LATER["1.38"])[:1]
    ]
    assert replay(records, emulated_version="1.37").total.identical == 0


def test_prints_a_line_per_category_and_the_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, records_of("ties")[:2], "a.jsonl")
    tmp_path.joinpath("b.jsonl.gz").write_bytes(gzip.compress(json.dumps(records_of("images")[0]).encode()))
    assert main([str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line) for line in shown.out.splitlines()] == [
        {"category": "images", "records": 1, "identical": 1, "first_difference": None},
        {"category": "ties", "records": 2, "identical": 2, "first_difference": None},
        {"category": "total", "records": 3, "identical": 3, "first_difference": None},
    ]
    assert shown.err == ""


def test_excluded_categories_are_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [*records_of("ties")[:1], *records_of("images")[:1]])
    assert main(["--exclude", "ties", str(tmp_path)]) == 0
    assert '"ties"' not in capsys.readouterr().out


def test_record_that_cannot_be_read_is_not_identical_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {**records_of("ties")[0], "category": "never-heard-of"}
    nameless = {key: value for key, value in good.items() if key not in ("name", "category")}
    lines = [json.dumps(good), "{broken", "[1]", json.dumps(nameless), '{"category": "never-heard-of"}']
    tmp_path.joinpath("odd.jsonl").write_text("\n\n".join(lines))
    tmp_path.joinpath("torn.jsonl.gz").write_bytes(gzip.compress(json.dumps(good).encode())[:-9])
    assert main([str(tmp_path)]) == 1
    found = {line["category"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    counts = {name: (line["records"], line["identical"]) for name, line in found.items()}
    assert counts == {"never-heard-of": (2, 1), "odd": (3, 1), "torn": (1, 0), "total": (6, 2)}
    assert found["odd"]["first_difference"]["record"] == "odd.jsonl:3"
    assert "JSONDecodeError" in found["odd"]["first_difference"]["problem"]


def test_folder_without_records_is_not_a_success(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1


def test_actual_is_computed_without_reading_the_expected(tmp_path: Path) -> None:
    records = records_of("taints")[:2]
    honest = tmp_path / "honest.jsonl"
    assert main(["--actual", str(honest), str(write(tmp_path, records))]) == 0
    changed = copy.deepcopy(records)
    changed[0]["expected"] = {"results": [{"chosen": "nowhere"}]}
    del changed[1]["expected"]
    other = tmp_path / "other"
    other.mkdir()
    again = tmp_path / "again.jsonl"
    assert main(["--actual", str(again), str(write(other, changed))]) == 1
    assert again.read_text() == honest.read_text()
    got = [json.loads(line) for line in honest.read_text().splitlines()]
    assert [line["name"] for line in got] == [record["name"] for record in records]
    assert got[0]["results"][0]["best"] == records[0]["expected"]["results"][0]["best"]


def test_first_difference_names_record_and_place() -> None:
    record = records_of("resources")[0]
    wanted = record["expected"]["results"][0]
    node = next(iter(wanted["filter"]["NodeResourcesFit"]))
    wanted["filter"]["NodeResourcesFit"][node]["reasons"] = ["Insufficient luck"]
    difference = replay([record]).total.first_difference
    assert difference is not None
    assert difference["record"] == record["name"]
    assert difference["path"].startswith(f"results[0].filter.NodeResourcesFit.{node}.reasons")


def test_record_that_cannot_be_run_is_not_identical() -> None:
    record = {**records_of("ties")[0], "services": [{"kind": "Parrot", "metadata": {"name": "x"}}]}
    done = replay([record])
    assert (done.total.records, done.total.identical, done.actual) == (1, 0, [])
    assert done.total.first_difference is not None
    assert "Parrot" in done.total.first_difference["problem"]


def test_failing_score_ends_the_attempt_also_with_a_single_node() -> None:
    record = next(r for r in records_of("node-affinity") if "error" in r["expected"]["results"][0])
    (wanted,) = record["expected"]["results"]
    for count in (len(wanted["feasible"]), 1):
        feasible = wanted["feasible"][:count]
        nodes = [node for node in record["nodes"] if node["metadata"]["name"] in feasible]
        (result,) = replay([{**record, "nodes": nodes}]).actual[0]["results"]
        assert (result["feasible"], result["best"], result.get("chosen")) == (feasible, [], None)
        assert result["error"].startswith('running PreScore plugin "NodeAffinity"')


def test_pods_of_a_queue_are_bound_one_after_the_other() -> None:
    record = records_of("ties")[0]
    pods = [copy.deepcopy(record["pod"]) for _ in range(3)]
    for i, pod in enumerate(pods):
        pod["metadata"] |= {"name": f"pod-{i}", "uid": f"uid-{i}"}
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    queue = {key: value for key, value in record.items() if key not in ("pod", "expected")}
    results = replay([{**queue, "queue": pods}]).actual[0]["results"]
    chosen = [result["chosen"] for result in results]
    assert len(set(chosen)) == 3
    for i, result in enumerate(results):
        assert (result["pod"], result["attempt"]) == (f"default/pod-{i}", 1)
        assert set(result["filter"]["NodePorts"]) == set(chosen[:i])


# --- the comparison --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "actual", "path"),
    [
        ({"a": 1}, {"a": 1, "b": [], "c": {}, "d": ""}, None),
        ({"error": "long text"}, {"error": "another"}, None),
        ({"error": "text"}, {}, "results[0].error"),
        ({"filter": {"NodePorts": {}}}, {"filter": {}}, "results[0].filter"),
        ({"total": [1, 2]}, {"total": [1, 3]}, "results[0].total[1]"),
        ({"total": [1]}, {"total": [1.0]}, "results[0].total[0]"),
        ({"best": ["a"]}, {"best": ["a", "b"]}, "results[0].best"),
    ],
)
def test_differences(expected: Json, actual: Json, path: str | None) -> None:
    found = first_difference([expected], [actual])
    assert (found["path"] if found else None) == path


def test_missing_results_differ() -> None:
    assert first_difference([{"pod": "a"}], []) is not None


def test_reads_files_in_order_and_skips_others(tmp_path: Path) -> None:
    write(tmp_path, [{"name": "2", "category": "x"}], "b.jsonl")
    write(tmp_path, [{"name": "1"}, {"name": "3", "category": "y"}], "a.jsonl")
    tmp_path.joinpath("README.md").write_text("no record")
    assert [record["name"] for record in read_records(tmp_path, {"y"})] == ["1", "2"]


# --- the replay is red when the host is wrong ------------------------------------------------------


def _one_filter_less(monkeypatch: pytest.MonkeyPatch) -> None:
    about = Asked.about
    monkeypatch.setattr(Asked, "about", lambda self, *args: about(self, *args)[:-1])


def _one_plugin_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    find = ClassRegistry.find
    monkeypatch.setattr(
        ClassRegistry, "find", lambda self, name: None if name == "ImageLocality" else find(self, name)
    )


def _no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_table.WeightedPlugin, "weight", 1)


def _unreversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "host_max_reversed", scores.host_max)


def _first_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    best = score_table.ScoreTable.best
    monkeypatch.setattr(score_table.ScoreTable, "best", lambda self: best(self)[:1])


def _uncounted_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeStatuses, "reasons", lambda self: {})


def _no_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeColumns, "_fill_usage", lambda self, slot, usage: None)


def _demands_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Demand, "of", staticmethod(lambda pod: Demand(())))


def _forgets_the_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_one, "rows_named", lambda table, names: np.arange(len(table)))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("break_it", "category"),
    [
        pytest.param(_one_filter_less, "resources", id="framework"),
        pytest.param(_one_plugin_not_built, "ties", id="missing plugin"),
        pytest.param(_no_weights, "images", id="weights"),
        pytest.param(_unreversed, "taints", id="normalisation"),
        pytest.param(_first_of_the_best, "ties", id="ties"),
        pytest.param(_uncounted_reasons, "resources", id="message"),
        pytest.param(_no_usage, "resources", id="snapshot"),
        pytest.param(_demands_nothing, "resources", id="plugin"),
        pytest.param(_forgets_the_subset, "node-affinity", id="search"),
    ],
)
def test_broken_host_is_seen(
    break_it: Callable[[pytest.MonkeyPatch], None], category: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(category)
    break_it(monkeypatch)
    assert replay(records).total.identical < len(records)
