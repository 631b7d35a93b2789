"""The length of a call: the frames and files from `schedule_one` to a plugin's method."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import ClassVar

import pytest
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.pod import Pod
from berth_sdk.status import Verdicts
from berth_sdk.tables import NodeTable, NodeView
from support.hosts import World, node, pod

FRAMES = 7
FILES = 6


@dataclass(frozen=True)
class Walk:
    """The calls from `schedule_one` to a plugin's method, without the method itself."""

    frames: list[str]
    files: set[str]

    @classmethod
    def here(cls) -> Walk:
        """Record the current stack; called by the plugin's method."""
        frame: FrameType | None = sys._getframe(1).f_back  # noqa: SLF001  # the walk is the subject
        frames: list[str] = []
        files: set[str] = set()
        while frame is not None:
            frames.insert(0, frame.f_code.co_qualname)
            files.add(frame.f_code.co_filename)
            if frame.f_code.co_name == "schedule_one":
                return cls(frames, files)
            frame = frame.f_back
        raise AssertionError(f"not called by schedule_one: {frames}")


class Walked(Plugin):
    """Records each walk to its Filter."""

    walks: ClassVar[list[Walk]] = []


class ByNode(Walked):
    """Filters node by node."""

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> None:
        self.walks.append(Walk.here())


class ByTable(Walked):
    """Filters all nodes at once."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        self.walks.append(Walk.here())
        return Verdicts.feasible(len(nodes))


class Keeps(ByTable):
    """Filters all nodes at once, with verdicts that are kept for equal pods; no two pods are equal."""

    depends_on = DependsOn.NODE

    def sign(self, pod: Pod, nodes: NodeTable) -> str:
        return pod.uid


@pytest.mark.parametrize("plugin", [ByNode, ByTable, Keeps])
async def test_filter_in_process_is_few_calls_from_schedule_one(plugin: type[Walked]) -> None:
    Walked.walks.clear()
    objects = [node("n0"), node("n1"), pod("a"), pod("b"), pod("c")]
    async with World(objects, [plugin]) as world:
        await world.settle()
    assert len(Walked.walks) >= 3
    for walk in Walked.walks:
        assert len(walk.frames) <= FRAMES, walk.frames
        assert len(walk.files) <= FILES, walk.files
