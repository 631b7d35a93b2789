"""A process that ends before the scheduler runs."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any, ClassVar

import pytest
from berth_host.app import HostOptions
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.endpoints.options import ServingOptions
from berth_host.errors.endpoints import EndpointError
from berth_host.process.process import ProcessSettings, SchedulerProcess
from berth_sdk.extension_points import Plugin
from support.hosts import enabling
from support.waiting import PATIENCE_S


def kubeconfig_of(folder: Path, user: dict[str, Any]) -> str:
    """Write a kubeconfig for a server that nobody runs, and return its path."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)


async def test_process_that_waits_for_its_credentials_ends_after_a_signal_to_stop(tmp_path: Path) -> None:
    plugin, started = tmp_path / "plugin.sh", tmp_path / "started"
    plugin.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 600\n")
    plugin.chmod(0o755)
    exec_plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    kubeconfig = kubeconfig_of(tmp_path, {"exec": exec_plugin})
    configuration = default_configuration()
    process = SchedulerProcess(
        ProcessSettings(
            configuration=configuration, load=lambda: configuration, default_kubeconfig=kubeconfig
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.ensure_future(process.run())
        while not started.exists():
            await asyncio.sleep(0.01)
        process.signals.stop()
        await running


class Closes(Plugin):
    """Counts how often it was closed."""

    closed: ClassVar[int] = 0

    def filter(self, state: object, pod: object, node: object) -> None:
        return None

    def close(self) -> None:
        type(self).closed += 1


async def test_process_that_cannot_listen_closes_its_plugins(tmp_path: Path) -> None:
    Closes.closed = 0
    configuration = load_configuration(
        enabling(["Closes"]), source="x", registered={"Closes": frozenset({"filter"})}
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = SchedulerProcess(
            ProcessSettings(
                configuration=configuration,
                load=lambda: configuration,
                default_kubeconfig=kubeconfig_of(tmp_path, {}),
                serving=ServingOptions(bind_address="127.0.0.1", port=taken.getsockname()[1]),
                options=HostOptions(plugins={"Closes": Closes}),
            )
        )
        with pytest.raises(EndpointError, match="the port is in use"):
            await process.run()
    assert Closes.closed == 1


async def test_process_that_stops_closes_its_plugins_once(tmp_path: Path) -> None:
    Closes.closed = 0
    configuration = load_configuration(
        enabling(["Closes"]), source="x", registered={"Closes": frozenset({"filter"})}
    )
    process = SchedulerProcess(
        ProcessSettings(
            configuration=configuration,
            load=lambda: configuration,
            default_kubeconfig=kubeconfig_of(tmp_path, {}),
            serving=ServingOptions(port=0),
            options=HostOptions(plugins={"Closes": Closes}),
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.ensure_future(process.run())
        while process.host is None:
            await asyncio.sleep(0.01)
        process.signals.stop()
        await running
    assert Closes.closed == 1
