"""`FormerInstances`: what becomes of their cycles, for instances that are not asked any more.

The outbox tells the instance that is asked, which has heard of the reservations of all others (Reconcile).
An instance that a newer one has replaced, or that says it is not ready, still holds those of its own cycles:
it is told as well, while it is attached. Each message goes once, beside the outbox, so that an instance that
hangs holds up nobody; what it does not hear it learns by the next Reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from berth_host.errors.plugins import PluginError
from berth_host.log import get_logger
from berth_host.rpc.cycle import CycleEnd

if TYPE_CHECKING:
    from berth_host.rpc.served.outbox import Parcel, Sender

_LOG = get_logger()


@dataclass(slots=True)
class _Untold:
    """What one instance has yet to hear."""

    unreserves: list[Parcel] = field(default_factory=list)
    post_binds: list[Parcel] = field(default_factory=list)
    ended: dict[str, CycleEnd] = field(default_factory=dict)


class FormerInstances:
    """Of one plugin."""

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin
        self._untold: dict[Sender, _Untold] = {}
        self._task: asyncio.Task[None] | None = None

    def unreserve(self, sender: Sender, parcel: Parcel) -> None:
        """A reservation of its own is given back."""
        self._add(sender, lambda untold: untold.unreserves.append(parcel))

    def post_bind(self, sender: Sender, parcel: Parcel) -> None:
        """A pod of its own is bound."""
        self._add(sender, lambda untold: untold.post_binds.append(parcel))

    def end_cycle(self, sender: Sender, cycle_id: str, outcome: CycleEnd) -> None:
        """A cycle of its own is over."""
        self._add(sender, lambda untold: untold.ended.update({cycle_id: outcome}))

    async def told(self, timeout_s: float) -> None:
        """Wait until everything was sent, or for so long."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=max(timeout_s, 0.0))

    async def close(self) -> None:
        """The host ends: stop sending."""
        self._untold.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _add(self, sender: Sender, add: Callable[[_Untold], None]) -> None:
        if not sender.is_there:
            return
        add(self._untold.setdefault(sender, _Untold()))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._tell(), name=f"former-{self._plugin}")

    async def _tell(self) -> None:
        while self._untold:
            sender = next(iter(self._untold))
            untold = self._untold.pop(sender)
            if not sender.is_there:
                continue
            try:
                if untold.unreserves:
                    await sender.send_unreserve(untold.unreserves)
                if untold.post_binds:
                    await sender.send_post_bind(untold.post_binds)
                if untold.ended:
                    await sender.send_end_cycles(list(untold.ended.items()))
            except PluginError as err:
                _LOG.warning("outbox.unheard", plugin=self._plugin, error=err.text)
