"""Fixtures for the tests of `berth bench`: a file of scheduler_perf with its templates, as a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from berth_bench.scheduler_perf.cases import read_workloads
from berth_bench.workload import Workload
from support.running_commands import Run, Write, nobodys_ci, run, write

__all__ = ["Run", "Write", "nobodys_ci", "run", "write"]

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-"},
    "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
}
RESOURCE_CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "claim-{{.Index}}"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpus"}}]}},
}
Op = dict[str, Any]
Obj = dict[str, Any]
WriteCase = Callable[..., Path]
ReadCase = Callable[..., Workload]


def nodes(count: int = 2, **more: Any) -> Op:
    return {"opcode": "createNodes", "count": count} | more


def pods(count: int = 3, **more: Any) -> Op:
    return {"opcode": "createPods", "count": count} | more


def measured(count: int = 3, **more: Any) -> Op:
    return pods(count, collectMetrics=True, **more)


@pytest.fixture
def template(tmp_path: Path) -> Callable[..., str]:
    """Write a template (an object or a text) and return its path as a case names it."""

    def written(content: Any, name: str = "other.yaml") -> str:
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (tmp_path / name).write_text(text)
        return name

    return written


@pytest.fixture
def write_case(tmp_path: Path) -> WriteCase:
    """Write a file with one case `C` and workload `w` of these ops; pods are small ones by default."""

    def written(*ops: Op, params: Mapping[str, Any] | None = None, case: Any = None, **workload: Any) -> Path:
        (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
        own = {"name": "w"} | ({"params": dict(params)} if params else {}) | workload
        whole = {
            "name": "C",
            "defaultPodTemplatePath": "pod.yaml",
            "workloadTemplate": list(ops),
            "workloads": [own],
        }
        path = tmp_path / "cases.yaml"
        path.write_text(yaml.safe_dump([whole | (case or {})], sort_keys=False))
        return path

    return written


@pytest.fixture
def case(write_case: WriteCase) -> ReadCase:
    """Return the workload of such a file."""

    def read(*ops: Op, **more: Any) -> Workload:
        (workload,) = read_workloads(write_case(*ops, **more))
        return workload

    return read
