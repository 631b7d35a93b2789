"""Which modules a command imports: a start does not import what it does not use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from berth_bench.soak.account import Account
from berth_bench.soak.clusters import embedded_cluster
from berth_bench.versus.free_ports import free_port
from berth_bench.versus.objects import node, pod
from support.waiting import PATIENCE_S

V1 = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
OLDER = V1.replace("/v1", "/v1beta3")
REPORT = "\nimport gc; assert gc.isenabled(); print(*sys.modules)"


def imported_by(code: str, *arguments: str) -> set[str]:
    """Run `code` in a child with the arguments, and return the modules that it imported."""
    child = subprocess.run(
        [sys.executable, "-c", code + REPORT, *arguments], capture_output=True, text=True, check=True
    )
    return set(child.stdout.splitlines()[-1].split())


def packages_among(modules: set[str], *names: str) -> list[str]:
    """Return the names that were imported, themselves or as the package of something imported."""
    return [name for name in names if any(f"{found}.".startswith(f"{name}.") for found in modules)]


COMMAND = """
import sys
from berth_host import run
try:
    run(arguments=sys.argv[1:])
except SystemExit as done:
    assert not done.code, done.code
"""


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_command_without_work_imports_none_of_its_commands(option: str) -> None:
    modules = imported_by(COMMAND, option)
    assert "berth_host.cli.main" in modules
    heavy = ("aiohttp", "berth_bench", "google", "grpc", "kubernetes", "numpy", "rich", "structlog", "yaml")
    own = (
        "berth_host.app",
        "berth_host.config",
        "berth_host.older_config",
        "berth_kube",
        "berth_sdk.author",
        "berth_sim",
    )
    assert packages_among(modules, *heavy, *own) == []


LOAD = """
import sys
from berth_host.cli.scheduler.settings import loaded
from berth_host.cli.scheduler.parsing import parse
loaded(parse(["--config", sys.argv[1]]), {})
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("text", "expected"), [(V1, []), (OLDER, ["berth_host.older_config"])])
def test_scheduler_imports_the_conversion_of_older_forms_for_an_older_file_alone(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    modules = imported_by(LOAD, str(file))
    assert "berth_host.config.loading" in modules
    assert packages_among(modules, "berth_host.older_config") == expected


SERVED = """---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins: [{name: Absent, endpoint: 'unix:///run/berth/absent.sock', required: false}]
"""
ENABLED = "profiles: [{plugins: {filter: {enabled: [{name: Absent}]}}}]\n"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("configuration", "expected"),
    [pytest.param(V1, [], id="defaults"), pytest.param(V1 + ENABLED + SERVED, ["grpc"], id="served plugin")],
)
async def test_scheduler_that_has_bound_a_pod_has_imported_what_its_configuration_needs(
    configuration: str, expected: list[str], tmp_path: Path
) -> None:
    pods = Account(["n1"])
    (tmp_path / "config.yaml").write_text(configuration)
    async with embedded_cluster(pods, tmp_path) as cluster:
        await cluster.create(node("n1", "4"))
        await cluster.create(pod("a"))
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", COMMAND + REPORT, "scheduler", f"--config={tmp_path / 'config.yaml'}"),
            *("--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={free_port()}"),
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert await pods.until(lambda: pods.bound == 1, PATIENCE_S)
        finally:
            child.terminate()
            output, _ = await child.communicate()
    modules = set(output.decode().splitlines()[-1].split())
    assert "berth_host.cycle.schedule_one" in modules
    other = (
        "berth_bench",
        "re2",
        "grpc",
        "kubernetes",
        "prometheus_client",
        "rich",
        "watchfiles",
    )
    own = ("berth_sim", "berth_host.older_config", "berth_sdk.serve")
    assert packages_among(modules, *other, *own) == expected
