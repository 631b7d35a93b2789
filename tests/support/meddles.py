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
from berth_sdk.kube_object import ObjectRef
from berth_sdk.needs import Need
from berth_sdk.pod import Pod
from berth_sdk.results import BindResult, ObjectPatch, PatchResult, PreBindResult
from berth_sdk.status import Status

CLAIMS: Final = "resource.k8s.io/resourceclaims"
LABEL: Final = "meddles"
HOLD: Final = "hold"
"""Held in PreBind, before the other plugins come to their turn."""
BIND: Final = "bind"
"""Held in Bind; then it is said to be bound, which the test has done meanwhile."""
FAIL: Final = "fail"
"""Bind fails."""
STALE: Final = "stale"
"""PreBind asks for changes of the claim that is called like the pod, at a version that is over."""
_LOOKS_S: Final = 0.02


class Meddles(Plugin):
    """Arguments: `folder`."""

    needs: Sequence[Need] = (Need.whole_pod(), Need.objects(CLAIMS))

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self._folder = Path(args["folder"])
        self._stale: dict[str, list[str]] = {}

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, patched: Sequence[PatchResult]
    ) -> PreBindResult:
        """Hold those that are to be held, and ask for what cannot be."""
        wish = pod.labels.get(LABEL)
        if wish == HOLD:
            await self._held(pod)
        left = self._stale.setdefault(pod.uid, ["", "status"] if wish == STALE else [])
        if not left:
            return PreBindResult(Status.success())
        patch = ObjectPatch(
            resource=CLAIMS,
            ref=ObjectRef(name=pod.name, namespace=pod.namespace),
            merge_patch={"metadata": {"labels": {"changed": "too late"}}},
            expected_resource_version="1",
            subresource=left.pop(0),
        )
        return PreBindResult(Status.success(), patches=(patch,))

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
