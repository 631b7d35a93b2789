"""Writes in the background: in order for each object, side by side for different ones."""

from __future__ import annotations

import asyncio

import pytest
from berth_host.cycle.ordered_writes import OrderedWrites, Write
from berth_host.errors.cluster import ClusterError, NotFoundError


class Writes:
    """Writes that wait for `go`, and the order in which they began and ended."""

    def __init__(self) -> None:
        self.writes = OrderedWrites("pods")
        self.go = asyncio.Event()
        self.seen: list[str] = []

    def write(self, name: str, error: Exception | None = None) -> Write:
        async def write() -> None:
            self.seen.append(f"begin {name}")
            await self.go.wait()
            if error is not None:
                raise error
            self.seen.append(f"end {name}")

        return write


async def test_writes_for_one_object_are_done_in_order() -> None:
    made = Writes()
    for name in ("a1", "a2"):
        made.writes.add("a", made.write(name))
    made.writes.add("b", made.write("b1"))
    await asyncio.sleep(0)
    assert (made.seen, len(made.writes), "a" in made.writes) == (["begin a1", "begin b1"], 2, True)
    made.go.set()
    await made.writes.settled("a")
    assert made.seen.index("end a1") < made.seen.index("begin a2")
    assert "a" not in made.writes


async def test_failed_write_is_reported_and_the_next_one_is_done() -> None:
    made = Writes()
    made.go.set()
    failed = made.writes.add("a", made.write("a1", NotFoundError("pods", "a")))
    done = made.writes.add("a", made.write("a2"))
    with pytest.raises(NotFoundError):
        await failed
    await done
    assert made.seen[-1] == "end a2"


async def test_flush_cancels_what_is_not_written_in_time() -> None:
    made = Writes()
    done = made.writes.add("a", made.write("a1"))
    assert not await made.writes.flush(0.01)
    with pytest.raises(asyncio.CancelledError):
        await done
    await made.writes.settled("a")
    assert await made.writes.flush(0)


async def test_write_that_its_client_cancelled_fails_alone() -> None:
    made = Writes()
    made.go.set()

    async def cancelled() -> None:
        raise asyncio.CancelledError

    failed = made.writes.add("a", cancelled)
    done = made.writes.add("a", made.write("a2"))
    with pytest.raises(ClusterError, match="cancelled by the client"):
        await failed
    await done
