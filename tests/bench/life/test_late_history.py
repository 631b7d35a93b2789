"""A watch cache that is behind: changes come late and in order, lists are those of now."""

from __future__ import annotations

import asyncio
import random

from berth_bench.life.late_history import LateHistory
from berth_bench.life.virtual_loop import VirtualClocks, run
from berth_bench.versus.objects import node
from berth_sdk.kube_object import ObjectRef
from berth_sim.cluster.http.history import Change, History
from berth_sim.cluster.server import ApiServer


def test_changes_come_late_and_in_their_order() -> None:
    async def life(clocks: VirtualClocks) -> None:
        server = ApiServer(clocks)
        history = History(server.store)
        late = LateHistory(history, asyncio.get_running_loop())
        heard: list[tuple[float, int]] = []

        def hear(change: Change) -> None:
            heard.append((clocks.monotonic_s(), change.version))

        stop = late.listen(hear)
        late.lag_s = 10.0
        server.create(node("a", "1"))
        late.lag_s = 1.0
        server.delete("nodes", ObjectRef(name="a"))
        before = late.version
        assert late.since(before) == []
        assert late.list_version == history.version > before
        await asyncio.sleep(20)
        # The second one does not overtake the first.
        assert [when for when, _ in heard] == [10.0, 10.0]
        assert [version for _, version in heard] == sorted({version for _, version in heard})
        assert late.version == history.version
        found = late.since(before)
        assert found is not None
        assert len(found) == 2
        late.lag_s = 100.0
        server.create(node("b", "1"))
        late.catch_up()
        assert len(heard) == 3
        server.create(node("c", "1"))
        assert len(heard) == 4
        history.compact()
        assert late.since(before) is None
        assert late.forgotten == history.version
        stop()
        server.create(node("d", "1"))
        assert len(heard) == 4
        late.close()
        history.close()

    run(life, random.Random(0))
