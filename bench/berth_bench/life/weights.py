"""`Weights`: how often what happens in a life, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Final

from berth_bench.life.faulty_cluster import Fault, Faults
from berth_bench.life.served_weights import ServedWeights
from berth_bench.life.storms import drawn_gap_s, drawn_storm

_TWO_HOSTS: Final = 0.125
"""The share of lives with two hosts."""
_KINDS = (
    Fault.TIME_OUT_BEFORE,
    Fault.TIME_OUT_AFTER,
    Fault.UNAVAILABLE_BEFORE,
    Fault.UNAVAILABLE_AFTER,
    Fault.INTERNAL_BEFORE,
    Fault.INTERNAL_AFTER,
    Fault.CONFLICT,
    Fault.TOO_MANY,
)


def drawn_hosts(seed: int) -> int:
    """Draw how many hosts the life of a seed has: 1 or 2.

    The generator is the number's own, so that all else in the life is drawn as with the other number.
    """
    return 2 if random.Random(f"{seed}/hosts").random() < _TWO_HOSTS else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of one life. Fields that end in `_gap_s` are the mean seconds between two such acts.

    `mood`: "calm", "mixed" or "hell". `nodes`: at the start. `most_devices`: the most devices of a node.
    `claim_share` and `volume_share`: of the bursts, whose pods have ResourceClaims or volumes.
    `topology_share`: of the gangs, which must be in one zone. `most_pods`: no more are created while so many
    exist. `burst`: the most pods at once. `cut_s`: the longest time that the API server is away, or that its
    watches are silent. `faults`: of the calls of the host. `plugin_errors`: the share of calls of Reserve and
    PreBind that fail. `thread_s`: the longest delay of work for a thread. `work_step_s`: see `VirtualClocks`.
    `served`: of the served plugin; None: the life has none.
    """

    mood: str
    nodes: int
    most_devices: int
    claim_share: float
    volume_share: float
    topology_share: float
    most_pods: int
    burst: int
    pods_gap_s: float
    gang_gap_s: float
    leave_gap_s: float
    node_gap_s: float
    taint_gap_s: float
    resize_gap_s: float
    devices_gap_s: float
    budget_gap_s: float
    quota_gap_s: float
    cut_gap_s: float
    cut_s: float
    restart_gap_s: float
    reload_gap_s: float
    faults: Faults
    plugin_errors: float
    thread_s: float
    work_step_s: float
    served: ServedWeights | None

    @property
    def is_calm(self) -> bool:
        """True if nothing fails in this life: all that happens is what users do."""
        return self.mood == "calm"

    @classmethod
    def drawn(cls, chance: random.Random) -> Weights:
        """Draw the weights of a life."""
        mood = chance.choice(("calm", "mixed", "mixed", "hell"))
        storm = drawn_storm(chance, mood)
        gap_s = partial(drawn_gap_s, chance, storm)
        return cls(
            mood=mood,
            nodes=chance.choice((chance.randint(2, 10), chance.randint(1, 3))),
            most_devices=chance.randint(0, 4),
            claim_share=chance.choice((0.0, 0.1, 0.3)),
            volume_share=chance.choice((0.0, 0.1, 0.3)),
            topology_share=chance.choice((0.0, 0.5)),
            most_pods=chance.randint(20, 80),
            burst=chance.randint(1, 12),
            pods_gap_s=gap_s(60.0, 20.0),
            gang_gap_s=gap_s(240.0, 90.0),
            leave_gap_s=gap_s(20.0, 8.0),
            node_gap_s=gap_s(900.0, 90.0),
            taint_gap_s=gap_s(600.0, 60.0),
            resize_gap_s=gap_s(900.0, 90.0),
            devices_gap_s=gap_s(900.0, 90.0),
            budget_gap_s=chance.choice((gap_s(600.0, 200.0), gap_s(60.0, 60.0))),
            quota_gap_s=gap_s(1200.0, 200.0),
            cut_gap_s=gap_s(900.0, 150.0),
            cut_s=60.0 * storm * chance.random(),
            restart_gap_s=gap_s(3000.0, 300.0),
            reload_gap_s=gap_s(3000.0, 400.0),
            faults=Faults(
                turns=chance.randint(0, 5),
                delay_s=chance.choice((0.0, 0.01, 0.2)) + 2.0 * storm * chance.random(),
                share=0.3 * storm * chance.random(),
                kinds=_KINDS,
            ),
            plugin_errors=0.1 * storm * chance.random(),
            thread_s=chance.choice((0.0, 0.001, 0.1)) + 2.0 * storm * chance.random(),
            work_step_s=chance.choice((0.0, 0.00001, 0.0002, 0.005)),
            served=chance.choice((None, ServedWeights.drawn(chance, storm))),
        )
