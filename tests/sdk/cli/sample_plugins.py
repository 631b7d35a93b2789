"""Plugins that the served processes of these tests load by `module:Class`."""

from __future__ import annotations

import os
import time
from typing import Any

from berth_sdk import Plugin, Status

print("imported", flush=True)  # standard output belongs to the handshake line alone


class Example(Plugin):
    """Rejects every node with the process's own id."""

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        print("asked", flush=True)
        return Status.unschedulable(str(os.getpid()))


class Secretive(Plugin):
    """Rejects every node with the environment that its own children would inherit."""

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        name = "BERTH_PLUGIN_CREDENTIAL"
        return Status.unschedulable(f"{name} is {'set' if name in os.environ else 'not set'}")


class Hanging(Plugin):
    """Never answers."""

    name = "Stuck"

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        print("asked", flush=True)
        time.sleep(3600)


class Less(Plugin):
    """Cannot be served."""

    def less(self, first: Any, second: Any) -> bool:
        return False


not_a_class = Example({}, None)  # type: ignore[arg-type]  # the mistake under test
