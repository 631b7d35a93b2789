"""GpuShare installed alone, with nothing but the SDK, into an empty environment, and served from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from berth_sdk.plugin.v1 import identity_pb2, identity_pb2_grpc
from support.examples import EXAMPLES
from support.places import ROOT

INSTALL_S = 600.0
START_S = 120.0
OFFLINE = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Read timed out",
    "Connection reset by peer",
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the SDK and the plugin, as `pip install` makes it."""
    path = tmp_path_factory.mktemp("alone") / "venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True, env=_bare())
    packages = (str(ROOT / "sdk"), str(EXAMPLES / "gpu_share"))
    done = subprocess.run(
        [path / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages],
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        env=_bare(),
        check=False,
    )
    if done.returncode and any(text in done.stderr for text in OFFLINE):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return path


def _bare() -> dict[str, str]:
    """Return an environment without the modules of this one."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture
def address(environment: Path, tmp_path: Path) -> Iterator[str]:
    """The plugin's class, found by its name."""
    found = f"unix:{tmp_path / 'p.sock'}"
    command: list[str | Path] = [environment / "bin/berth-sdk", "serve", "GpuShare", "--listen", found]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_bare(), cwd=tmp_path
    )
    try:
        ends_s = time.monotonic() + START_S
        while not (tmp_path / "p.sock").exists():
            assert process.poll() is None, "it ended"
            assert time.monotonic() < ends_s
            time.sleep(0.05)
        yield found
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.long
def test_package_installs_without_the_host(environment: Path) -> None:
    listed = subprocess.run(
        [environment / "bin/pip", "list", "--format", "json", "--disable-pip-version-check"],
        capture_output=True,
        check=True,
        env=_bare(),
    )
    names = {item["name"] for item in json.loads(listed.stdout)}
    assert {"berth-sdk", "berth-gpu-share"} <= names
    assert not names & {"berth-host", "berth-plugins", "kubernetes", "aiohttp"}


@pytest.mark.slow
@pytest.mark.long
def test_installed_plugin_is_served_by_its_name(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = identity_pb2_grpc.IdentityServiceStub(channel)
        request = identity_pb2.HandshakeRequest(
            attachment_id="a", host_epoch=1, offered=[identity_pb2.ContractVersion(major=1)]
        )
        reply = stub.Handshake(request, timeout=START_S, wait_for_ready=True)
    (plugin,) = reply.plugins
    assert plugin.name == "GpuShare"
    points = {identity_pb2.ExtensionPoint.Name(point) for point in plugin.points}
    assert points == {f"EXTENSION_POINT_{name}" for name in ("FILTER", "SCORE", "RESERVE", "PRE_BIND")}
