"""A process that is told to end before the scheduler runs ends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from berth_host.config.loading import default_configuration
from berth_host.process.process import ProcessSettings, SchedulerProcess
from support.waiting import PATIENCE_S


async def test_process_that_waits_for_its_credentials_ends_after_a_signal_to_stop(tmp_path: Path) -> None:
    plugin, started = tmp_path / "plugin.sh", tmp_path / "started"
    plugin.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 600\n")
    plugin.chmod(0o755)
    exec_plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"exec": exec_plugin}}],
            }
        )
    )
    configuration = default_configuration()
    process = SchedulerProcess(
        ProcessSettings(
            configuration=configuration, load=lambda: configuration, default_kubeconfig=str(kubeconfig)
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.ensure_future(process.run())
        while not started.exists():
            await asyncio.sleep(0.01)
        process.signals.stop()
        await running
