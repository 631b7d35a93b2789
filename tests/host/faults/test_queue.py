"""Row 35 of the failure table, with real processes: the plugin that sorts the queue is down."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faults import FailingProcess, RawPlugin, attached, configuration, in_time, running
from support.hosts import World, node, pod
from support.raw_plugin import HOLD
from support.scripted_plugin import descriptor
from support.waiting import until

pytestmark = pytest.mark.slow
NAMES = ["p5", "p4", "p3", "p2", "p1", "p0"]


@pytest.mark.long
async def test_row_35_without_its_sorter_the_queue_goes_by_time_and_is_keyed_anew_when_it_returns(
    tmp_path: Path,
) -> None:
    """The sorter wants them by name, and they come the other way round."""
    sorter = FailingProcess(tmp_path / "sorter")
    gate = RawPlugin(tmp_path / "gate", descriptor("Raw", "FILTER"))
    text = configuration(
        sorter, gate, more="required: false", budget="30s", Failing="queueSort", Raw="filter"
    )

    def filtered() -> list[str]:
        return [request.ctx.pod.summary.ref.name for request in gate.requests("Filter")]

    async with running(sorter, gate), World([node("n0")], configuration=text) as world:
        await in_time(lambda: attached(world) and attached(world, "Raw"))
        await sorter.kill()
        await in_time(lambda: not attached(world))
        gate.on("Filter", HOLD)
        for name in NAMES:
            world.server.create(pod(name))
        await until(lambda: filtered() == ["p5"])
        await sorter.start()
        await until(
            lambda: {name for words in sorter.asked("SortKeys") for name in words[1:]} >= {*NAMES[1:]}
        )
        await in_time(lambda: not world.host.wiring.busy)
        assert filtered() == ["p5"]  # the others were ordered where they were
        gate.on("Filter", None)
        await in_time(lambda: all(world.node_of(name) for name in NAMES))
        assert filtered() == ["p5", "p0", "p1", "p2", "p3", "p4"]
