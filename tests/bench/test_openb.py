"""The openb trace as manifests and as a workload: names, order, sizes, and errors in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_bench import running
from berth_bench.openb import NODES, TASKS, node_manifest, nodes_of, pod_manifest, workload_of
from berth_bench.running import Settings
from berth_host.app.host import Host
from berth_host.errors.manifests import ManifestError

NODE_LINES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,64000,262144,2,P100\n"
TASK_LINES = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time\n"
    "t0,12000,16384,1,460,,LS,Running,0\n"
    "t1,6000,1024,0,0,,BE,Running,1\n"
    "t2,1000,1024,1,1000,P100|T4,LS,Running,2\n"
    "t3,1000,1024,2,1000,,LS,Running,3\n"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / NODES).write_text(NODE_LINES)
    (tmp_path / TASKS).write_text(TASK_LINES)
    return tmp_path


def test_node_has_its_gpus_whole_and_in_milli() -> None:
    row = {"sn": "n", "cpu_milli": "64000", "memory_mib": "262144", "gpu": "2", "model": "P100"}
    node = node_manifest(row)
    assert node["metadata"]["labels"] == {"kubernetes.io/hostname": "n", "gpu-share.berth.io/model": "P100"}
    assert node["status"]["allocatable"] == {
        "cpu": "64000m",
        "memory": "262144Mi",
        "pods": "256",
        "gpu-share.berth.io/gpu": "2",
        "gpu-share.berth.io/gpu-milli": "2000",
    }


def test_task_says_how_many_gpus_and_how_much_of_each() -> None:
    row = {"name": "t", "cpu_milli": "1", "memory_mib": "2", "num_gpu": "4", "gpu_milli": "250"}
    pod = pod_manifest(row | {"gpu_spec": "A|B", "qos": "LS"})
    assert pod["metadata"]["annotations"] == {
        "gpu-share.berth.io/gpu-count": "4",
        "gpu-share.berth.io/gpu-milli": "250",
        "gpu-share.berth.io/gpu-model": "A|B",
    }
    resources = pod["spec"]["containers"][0]["resources"]
    gpus = {"gpu-share.berth.io/gpu": "4", "gpu-share.berth.io/gpu-milli": "1000"}
    assert resources == {"requests": {"cpu": "1m", "memory": "2Mi"} | gpus, "limits": gpus}


@pytest.mark.slow
async def test_tasks_are_placed_in_order_and_whole_gpus_run_out(data: Path, tmp_path: Path) -> None:
    placements = tmp_path / "placements.csv"
    result = await running.run(workload_of(data), Settings(placements=str(placements)))
    assert (result.figures.nodes, result.figures.pods, result.figures.bound) == (2, 4, 3)
    lines = placements.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"openb/t{i}" for i in range(4)]
    assert lines[0].startswith("openb/t0,n1,")
    assert lines[3].startswith("openb/t3,,")
    assert result.gpu_share == 1460 / 2000


@pytest.mark.long
@pytest.mark.slow
async def test_copies_of_the_nodes_are_whole_before_the_tasks_come(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    synchronise = Host.synchronise

    async def noted(host: Host) -> None:
        await synchronise(host)
        seen.append((len(host.snapshot.nodes), len(host.diagnoses)))

    monkeypatch.setattr(Host, "synchronise", noted)
    await running.run(workload_of(data), Settings())
    assert set(seen[1:]) == {(2, 0)}


def test_other_numbers_of_nodes_are_taken_at_even_distances_and_repeat_lines(data: Path) -> None:
    names = [[node["metadata"]["name"] for node in nodes_of(data, count)] for count in (1, 2, 5)]
    assert names == [["n0"], ["n0", "n1"], ["n0", "n1", "n0-1", "n1-1", "n0-2"]]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        pytest.param(NODES, None, "cannot be read: No such file", id="no nodes"),
        pytest.param(TASKS, None, f"the folder must hold {NODES} and {TASKS}", id="no tasks"),
        pytest.param(TASKS, "name\nt0\n", "lacks the columns cpu_milli, memory_mib", id="columns"),
        pytest.param(NODES, NODE_LINES.replace("64000", "many"), ":3: cpu_milli must be", id="no number"),
    ],
)
def test_files_that_are_not_the_trace_are_refused(
    data: Path, name: str, text: str | None, problem: str
) -> None:
    if text is None:
        (data / name).unlink()
    else:
        (data / name).write_text(text)
    with pytest.raises(ManifestError, match=problem):
        workload_of(data)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        pytest.param(NODES, NODE_LINES.splitlines()[0] + "\n", "1: holds no line below", id="no node"),
        pytest.param(TASKS, TASK_LINES + "t4,1000,10\n", "6: ends before num_gpu", id="cut off"),
    ],
)
def test_incomplete_files_are_refused(data: Path, name: str, text: str, problem: str) -> None:
    (data / name).write_text(text)
    with pytest.raises(ManifestError, match=f"{name}:{problem}"):
        workload_of(data, 3)
