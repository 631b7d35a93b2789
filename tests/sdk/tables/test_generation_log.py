"""A log of removals that returns None when it has dropped entries."""

from __future__ import annotations

from berth_sdk.tables.generation_log import GenerationLog


def test_removals_since_a_generation_come_oldest_first() -> None:
    log: GenerationLog[str] = GenerationLog()
    for generation, name in ((2, "a"), (2, "b"), (5, "c")):
        log.add(generation, name)
    assert log.since(0) == [(2, "a"), (2, "b"), (5, "c")]
    assert log.since(2) == [(5, "c")]
    assert log.since(5) == []


def test_since_is_none_when_the_log_has_dropped_entries() -> None:
    log: GenerationLog[str] = GenerationLog(limit=2)
    for generation, name in ((1, "a"), (3, "b"), (4, "c")):
        log.add(generation, name)
    assert log.since(0) is None
    assert log.since(1) == [(3, "b"), (4, "c")]
