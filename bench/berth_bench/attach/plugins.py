"""Plugins to attach: `berth-sdk serve berth_bench.attach.plugins:Any7` serves a plugin named Any7."""

from __future__ import annotations

from typing import Final

from berth_sdk import CycleState, Node, Plugin, Pod, Status

PREFIX: Final = "Any"


class _Any(Plugin):
    """Accepts every node."""

    def filter(self, state: CycleState, pod: Pod, node: Node) -> Status | None:
        """Return None: the node fits."""
        return None


def __getattr__(name: str) -> type[Plugin]:
    """Make a class for a numbered name, such as Any7. Raises AttributeError for other names."""
    if name.startswith(PREFIX) and name.removeprefix(PREFIX).isdigit():
        return type(name, (_Any,), {"__module__": __name__})
    raise AttributeError(f"module {__name__} has no attribute {name}")
