"""The random numbers of a process."""

from __future__ import annotations

import random
import uuid
from typing import Any

from berth_sdk import chance


def drawn() -> list[Any]:
    return [
        chance.share(),
        chance.below(10**9),
        chance.token_hex(8),
        chance.new_uid(),
        chance.generator().random(),
    ]


def test_replaced_source_gives_the_same_numbers_for_the_same_seed() -> None:
    seen = []
    for seed in (1, 1, 2):
        with chance.replaced(random.Random(seed)):
            seen.append(drawn())
    assert seen[0] == seen[1]
    assert all(one != other for one, other in zip(seen[0], seen[2], strict=True))


def test_machines_source_gives_other_numbers_each_time() -> None:
    with chance.replaced(random.Random(1)):
        pass
    assert all(one != other for one, other in zip(drawn(), drawn(), strict=True))


def test_numbers_have_their_forms() -> None:
    assert 0 <= chance.share() < 1
    assert {chance.below(3) for _ in range(200)} == {0, 1, 2}
    assert len(bytes.fromhex(chance.token_hex(10))) == 10
    assert uuid.UUID(chance.new_uid()).version == 4
