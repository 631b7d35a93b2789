"""A plugin whose PreBind takes a while: a test can end a scheduler in the middle of a binding cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import Plugin
from berth_sdk.pod import Pod
from berth_sdk.results import PatchResult, PreBindResult
from berth_sdk.status import Status

TAKES_S: Final = 2.0


class SlowPreBind(Plugin):
    """Answers yes, after TAKES_S."""

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        await asyncio.sleep(TAKES_S)
        return PreBindResult(Status.success())
