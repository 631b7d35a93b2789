"""A plugin that cancels bindings from its PreBind, and writes down what it was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.handle import Handle
from berth_sdk.pod import Pod
from berth_sdk.results import PatchResult, PreBindResult, ReserveResult
from berth_sdk.status import SUCCESS

HELD, ASKS, SELF = "held", "asks", "self"
LONGER_THAN_ANY_TEST_S = 600.0


class CancelsBindings(Plugin):
    """HELD stays in its first PreBind; ASKS cancels it there, and SELF itself. `args`: `folder`."""

    def __init__(self, args: dict[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._folder = Path(args["folder"])
        self._held: tuple[Pod, str] | None = None
        self._seen: set[str] = set()

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> ReserveResult:
        """Nothing is kept; PreBind is what counts."""
        return ReserveResult(SUCCESS)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """The status after a cancelled binding."""
        self._write(f"unreserve {pod.name}")

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """See the class."""
        is_first = pod.name not in self._seen
        self._seen.add(pod.name)
        self._write(f"pre_bind {pod.name}")
        if pod.name == HELD and is_first:
            self._held = pod, state.cycle_id
            (self._folder / HELD).touch()
            await asyncio.sleep(LONGER_THAN_ANY_TEST_S)
        if pod.name == ASKS:
            await asyncio.to_thread(self._ask)
        if pod.name == SELF and is_first:
            # On the host's own loop, from the task that is cancelled.
            self._write(self.handle.cancel_binding(pod, "changed its mind").name)
        return PreBindResult(SUCCESS)

    def _ask(self) -> None:
        assert self._held is not None
        held, cycle_id = self._held
        cancel = self.handle.cancel_binding
        self._write(cancel(Pod(name="nobody", uid="nobody")).name)
        self._write(cancel(held, "not this one", cycle_id="another").name)
        self._write(cancel(held, "no more room", cycle_id=cycle_id).name)
        self._write(cancel(held, "once more", cycle_id=cycle_id).name)

    def _write(self, line: str) -> None:
        with (self._folder / "log").open("a") as log:
            log.write(f"{line}\n")
