"""A plugin that lets a test come in between: it holds pods in PreBind, and binds or fails in its own way.

What it does to a pod the pod's label `meddles` says. For a held pod it writes a file `POD.held` into the
folder of its arguments, and goes on when the test has written `POD.go` there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, PatchResult, PreBindResult
from berth_sdk.status import Status

LABEL: Final = "meddles"
HOLD: Final = "hold"
"""Held in PreBind, before the other plugins come to their turn."""
BIND: Final = "bind"
"""Held in Bind; then it is said to be bound, which the test has done meanwhile."""
FAIL: Final = "fail"
"""Bind fails."""
_LOOKS_S: Final = 0.02


class Meddles(Plugin):
    """Arguments: `folder`."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._folder = Path(args["folder"])

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """Hold those that are to be held."""
        if pod.labels.get(LABEL) == HOLD:
            await self._held(pod)
        return PreBindResult(Status.success())

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> BindResult:
        """SKIP but for those that ask for it."""
        wish = pod.labels.get(LABEL)
        if wish == FAIL:
            return BindResult(Status.error("fails on purpose"))
        if wish == BIND:
            await self._held(pod)
            return BindResult(Status.success())
        return BindResult(Status.skip())

    async def _held(self, pod: Pod) -> None:
        (self._folder / f"{pod.name}.held").write_text("")
        while not (self._folder / f"{pod.name}.go").exists():
            await asyncio.sleep(_LOOKS_S)
