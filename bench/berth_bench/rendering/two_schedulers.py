"""Render the results of `berth bench two-schedulers` as text, without `-o`."""

from __future__ import annotations

from collections.abc import Sequence

from berth_host.cli.rendering.columns import columns

from berth_bench.two_schedulers.figures import Outcome

_HEADER = ("SCHEDULERS", "PODS", "PLACES", "BOUND", "TOO MANY", "OVERFULL NODES", "SENT BACK")


def outcomes_text(outcomes: Sequence[Outcome]) -> str:
    """Return a line for each case."""
    rows = [
        (
            one.title,
            *(str(n) for n in (one.pods, one.places, one.bound, one.too_many, one.overfull_nodes)),
            str(one.sent_back),
        )
        for one in outcomes
    ]
    return columns(_HEADER, rows, right=range(1, len(_HEADER))) + "\n"
