"""Pods that stay pending -> text: those with the same reason together, the reason once.

Called by `report`, for `berth simulate`, and by the demo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from berth_host.cli.rendering.terminal import Terminal
from berth_host.cli.report import PendingPod

_NAMED: Final = 4
Remarks = Callable[[PendingPod], Sequence[str]]


def pending_lines(
    pending: Sequence[PendingPod], terminal: Terminal, remarks: Remarks = lambda _: ()
) -> Iterator[str]:
    """The pods of each reason, the reason, and `remarks` about the first of the pods that are alike."""
    by_reason: dict[str, list[PendingPod]] = {}
    for item in pending:
        by_reason.setdefault(item.message, []).append(item)
    for message, pods in by_reason.items():
        by_owner: dict[str | None, list[PendingPod]] = {}
        for item in pods:
            by_owner.setdefault(item.owner, []).append(item)
        for alike in by_owner.values():
            yield terminal.alarming(terminal.wrapped(_named(alike), 2, 4))
        yield terminal.wrapped(message, 4)
        for alike in by_owner.values():
            # Where it is not clear whose it is, a remark says it.
            whose = f"{alike[0].pod}: " if len(pods) > len(alike) or _have_no_owner(alike) else ""
            for remark in remarks(alike[0]):
                yield terminal.wrapped(f"{whose}{remark}", 4)


def _have_no_owner(alike: Sequence[PendingPod]) -> bool:
    return len(alike) > 1 and alike[0].owner is None


def _named(alike: Sequence[PendingPod]) -> str:
    """Pods of one workload by the first of them; others by their names, the first few."""
    first, owner = alike[0].pod, alike[0].owner
    if owner is not None:
        more = f" and {len(alike) - 1} more like it" if len(alike) > 1 else ""
        return f"{first}{more}   ({owner})"
    names = ", ".join(item.pod for item in alike[:_NAMED])
    return names + (f" and {len(alike) - _NAMED} more" if len(alike) > _NAMED else "")
