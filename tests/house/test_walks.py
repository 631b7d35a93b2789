"""The length of a call: the frames and files from `schedule_one` to a plugin's method, or to gRPC."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import berth_host
import pytest
from berth_host.rpc.served.frames import FramedConnection
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, Plugin
from berth_sdk.pod import Pod
from berth_sdk.serve.server import PluginServer
from berth_sdk.status import Verdicts
from berth_sdk.tables import NodeTable, NodeView
from berth_sdk.wire.frames import Frame
from grpc.aio._channel import UnaryUnaryMultiCallable
from support.hosts import World, enabling, node, pod
from support.places import ROOT

HOST = Path(str(berth_host.__file__)).parent
FRAMES = 7
FILES = 6
SERVED_FRAMES = 14
SERVED_FILES = 12
PREEMPTION_FRAMES = 34
PAGES = [ROOT / "docs" / "explanation" / name for name in ("life-of-a-pod.md", "map.md")]


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

    def unnamed(self) -> list[str]:
        """Return the host's files on the walk that no page about the path of a pod names."""
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
        paths = [Path(name) for name in self.files]
        named = [path.relative_to(HOST).as_posix() for path in paths if path.is_relative_to(HOST)]
        return sorted(one for one in named if one not in text)


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
        assert walk.unnamed() == []


class Served(Plugin):
    """Filters all nodes at once, in a server."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        return Verdicts.feasible(len(nodes))


@pytest.mark.parametrize("transport", ["framed", "unary"])
async def test_filter_over_the_wire_is_few_calls_from_schedule_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    walks: list[Walk] = []
    unary, framed = UnaryUnaryMultiCallable.__call__, FramedConnection._put  # noqa: SLF001

    def watched(self: UnaryUnaryMultiCallable[Any, Any], *args: Any, **kwargs: Any) -> Any:
        if vars(self)["_method"].endswith(b"/Filter"):
            walks.append(Walk.here())
        return unary(self, *args, **kwargs)

    async def watched_frames(self: FramedConnection, message: bytes, deadline_s: float) -> Frame:
        walks.append(Walk.here())
        return await framed(self, message, deadline_s)

    monkeypatch.setattr(UnaryUnaryMultiCallable, "__call__", watched)
    monkeypatch.setattr(FramedConnection, "_put", watched_frames)
    socket = f"unix:{tmp_path / 'p.sock'}"
    attached = (
        "---\napiVersion: config.berth.io/v1alpha1\nkind: BerthConfiguration\n"
        f"plugins:\n- name: Served\n  endpoint: unix://{tmp_path / 'p.sock'}\n  transport: {transport}\n"
    )
    with PluginServer({"Served": Served}) as server:
        server.listen(socket)
        objects = [node("n0"), node("n1"), pod("a"), pod("b")]
        async with World(objects, configuration=enabling(["Served"], attached)) as world:
            await world.settle()
    assert len(walks) >= 2
    for walk in walks:
        # Before the served plugin is called about all nodes, others may judge the rows that changed.
        early = 3 if "judge_early" in walk.frames else 0
        assert len(walk.frames) <= SERVED_FRAMES + early, walk.frames
        assert len(walk.files) <= SERVED_FILES, walk.files
        assert walk.unnamed() == []


class InPreemption(Walked):
    """Records the walks of the what-ifs in which victims are gone."""

    def filter_nodes(self, state: CycleState, pod: Pod, nodes: NodeTable) -> Verdicts:
        walk = Walk.here()
        if any("post_filter" in name for name in walk.frames):
            self.walks.append(walk)
        return Verdicts.feasible(len(nodes))


async def test_what_if_of_preemption_is_few_calls_from_schedule_one() -> None:
    Walked.walks.clear()
    objects = [node("n0", cpu="1"), pod("low", cpu="1", priority=0, nodeName="n0")]
    async with World([*objects, pod("high", cpu="1", priority=10)], [InPreemption]) as world:
        await world.settle()
    assert Walked.walks
    for walk in Walked.walks:
        assert len(walk.frames) <= PREEMPTION_FRAMES, (len(walk.frames), walk.frames)
