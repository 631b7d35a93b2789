"""The clocks that the SDK, the host and the default plugins read."""

from __future__ import annotations

import time

from berth_sdk import clocks


class Still:
    """Clocks that stand still."""

    def monotonic_s(self) -> float:
        return 1.0

    def wall_s(self) -> float:
        return 2.0

    def work_s(self) -> float:
        return 3.0

    def thread_s(self) -> float:
        return 4.0


def read() -> tuple[float, float, float, float]:
    return clocks.monotonic_s(), clocks.wall_s(), clocks.work_s(), clocks.thread_s()


def test_replaced_clocks_are_read_until_the_block_ends_also_by_a_function_taken_before() -> None:
    taken = clocks.monotonic_s
    with clocks.replaced(Still()):
        assert read() == (1.0, 2.0, 3.0, 4.0)
        assert taken() == 1.0
    assert taken() > 1.0


def test_clocks_are_those_of_the_machine() -> None:
    before = time.monotonic(), time.time(), time.perf_counter(), time.thread_time()
    seen = read()
    after = time.monotonic(), time.time(), time.perf_counter(), time.thread_time()
    assert all(low <= at <= high for low, at, high in zip(before, seen, after, strict=True))
