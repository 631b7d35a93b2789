"""`KeptMachine` with the plugins of `kept_plugins` served in one of the two clusters, and declared by fields.

The state machine of `tests/host/rpc/test_kept_served.py`: the host keeps the answers of served plugins, and
comes to the same as a host that calls the same plugins in its process about everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from berth_host.app.alone import FrameworkAlone
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.loading import load_configuration
from berth_host.plugins.registry import ClassRegistry
from berth_sdk.pod_fields import PodField
from berth_sdk.serve.server import PluginServer
from support.kept_plugins import Census, Fickle, Moody
from support.kept_world import CONFIGURATION, KeptMachine
from support.patience import with_patience


class CensusByLabels(Census):
    """`Census`, whose pods are equal in their labels."""

    sign = None  # type: ignore[assignment]
    sign_fields = (PodField.LABELS,)


class FickleByNothing(Fickle):
    """`Fickle`, to which all pods are equal."""

    sign = None  # type: ignore[assignment]
    sign_fields = ()


PLUGINS = {"Census": CensusByLabels, "Fickle": FickleByNothing, "Moody": Moody}


class ServedKeptMachine(KeptMachine):
    """One cluster calls the plugins through a socket, the other one in its process."""

    def made(self, configuration: LoadedConfiguration) -> tuple[FrameworkAlone, FrameworkAlone]:
        """The cluster with served plugins, whose answers are kept, and the one that asks about everything."""
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        socket = Path(self.folder.name) / "p.sock"
        self.server = PluginServer(PLUGINS)
        self.server.listen(f"unix:{socket}")
        places = "".join(f"- name: {name}\n  endpoint: unix://{socket}\n" for name in PLUGINS)
        served = load_configuration(
            f"{CONFIGURATION}---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
            f"cycleBudget: 60s\nplugins:\n{places}",
            source="test",
            registered=ClassRegistry(PLUGINS).points(),
        )
        keeps = FrameworkAlone(with_patience(served))
        self.loop.run_until_complete(keeps.__aenter__())
        return keeps, FrameworkAlone(configuration, plugins=PLUGINS, keep_answers=False)

    def run(self, said: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Run one cycle to its end, on the loop of the connections."""
        return self.loop.run_until_complete(said)

    def teardown(self) -> None:
        """End the connections and the server."""
        self.loop.run_until_complete(self.both[0].__aexit__())
        self.server.stop(0)
        self.loop.close()
        self.folder.cleanup()

    def snapshot_is_begun_anew(self) -> None:
        """Not here: the copies of served plugins follow the snapshot that they began with."""
