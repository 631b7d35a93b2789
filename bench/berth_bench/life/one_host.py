"""`OneHost`: the only host of a life, on a port that fails call by call (`FaultyCluster`).

The host ends now and then, and the next one begins: as at a regular stop, or as after the loss of its Lease.
It also reloads its configuration.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from berth_host.app import Host
from berth_host.app.reload import reload
from berth_host.config.configuration import LoadedConfiguration
from berth_host.errors.cluster import ClusterError
from berth_host.errors.plugins import PluginError, PluginLoadError
from berth_sim.cluster.cluster import MemoryCluster

from berth_bench.life.faulty_cluster import FaultyCluster
from berth_bench.life.hosts import Act, Configurations, MakeOptions
from berth_bench.life.laws import LawBrokenError, Laws
from berth_bench.life.own_view import OwnView
from berth_bench.life.plugins import Ledger
from berth_bench.life.stage import Stage

_CUT_LEAST_S: Final = 0.5
_NAME: Final = "chooser"
"""The name of each host, from which its options are made."""


class OneHost:
    """The host, and its port. See `Hosts`."""

    def __init__(
        self,
        stage: Stage,
        chance: random.Random,
        laws: Laws,
        configuration: Configurations,
        options: MakeOptions,
    ) -> None:
        """Make the first host."""
        self._stage = stage
        self._weights = stage.weights
        self._chance = chance
        self._trace = stage.trace
        self._laws = laws
        self._drawn = configuration
        self._configuration = configuration(None)
        self._changing = asyncio.Lock()
        self._options = options
        self._own_view = OwnView()
        self._broken = ""
        self._port, self.host, self._ledgers = self._new_host()
        self._changes: list[asyncio.Future[None]] = []

    @property
    def ledger(self) -> Ledger:
        """The records of the host's plugin."""
        return self._ledgers[-1]

    @property
    def machine(self) -> str:
        """The only machine."""
        return ""

    def following(self) -> Sequence[tuple[Host, Ledger]]:
        """Return the host. See `Hosts`."""
        return [(self.host, self.ledger)]

    def acts(self) -> Sequence[Act]:
        """Return the cuts, the restarts and the reloads, as the weights have them."""
        weights = self._weights
        cuts = (Act("cut", weights.cut_gap_s, self._cut),) if weights.cut_s else ()
        if weights.is_calm:
            return cuts
        return (
            *cuts,
            Act("restart", weights.restart_gap_s, self._host_ends),
            Act("reload", weights.reload_gap_s, self._reload),
        )

    async def start(self) -> None:
        """Start the host."""
        await self.host.start()

    def check(self) -> None:
        """Raise the error that the host stopped with, and LawBrokenError."""
        self.host.check()
        self._look()
        if self._broken:
            raise LawBrokenError(self._broken)

    def behave(self) -> None:
        """Let nothing fail and nothing be late from now on."""
        self._port.behave()

    async def settle(self) -> None:
        """Wait for the end of restarts and reloads."""
        self._port.behave()
        for change in list(self._changes):
            await change

    async def stop(self) -> None:
        """Stop the host."""
        await self.host.stop()

    def kill(self) -> None:
        """Do nothing: the end of the loop cancels what is left."""

    def _look(self) -> None:
        """Keep the first law that what the host knows breaks. A host that is being replaced knows nothing."""
        if not self._broken and not self._changing.locked():
            self._broken = self._own_view.broken(self.host)

    async def _cut(self, chance: random.Random) -> None:
        """Let the API server be away, or its watches be silent, for a while."""
        port = self._port
        is_away = chance.random() < 0.5
        self._trace.add("server away" if is_away else "watches silent")
        if is_away:
            port.die()
        else:
            port.stand_still()
        await asyncio.sleep(chance.uniform(_CUT_LEAST_S, self._weights.cut_s + _CUT_LEAST_S))
        self._trace.add("server back")
        port.revive()

    async def _host_ends(self, chance: random.Random) -> None:
        loses_lead = chance.random() < 0.5
        self._trace.add("host loses the lead" if loses_lead else "host stops")
        await self._change(self._replace(loses_lead))
        self._trace.add("host began")

    async def _reload(self, chance: random.Random) -> None:
        self._trace.add("host reloads")
        await self._change(self._reloaded(self._drawn(chance)))
        self._trace.add("host reloaded")

    async def _change(self, change: Coroutine[Any, Any, None]) -> None:
        """Run a change of the host, one after the other, to its end: also if the world ends meanwhile."""

        async def in_turn() -> None:
            async with self._changing:
                await change

        changing = asyncio.ensure_future(in_turn())
        self._changes.append(changing)
        await asyncio.shield(changing)
        self._changes.remove(changing)

    async def _reloaded(self, configuration: LoadedConfiguration) -> None:
        """Put a host with another configuration in the place of the host."""
        try:
            self.host = await reload(self.host, configuration)
        except (PluginLoadError, PluginError, ClusterError) as err:
            # The host before goes on, as it does for an operator.
            self._trace.add(f"reload refused: {err}")
            return
        self._configuration = configuration

    async def _replace(self, loses_lead: bool) -> None:
        """Stop the host, or let it lose the lead; start the next one."""
        if loses_lead:
            await self.host.abandon()
        else:
            await self.host.stop()
        self._port, self.host, self._ledgers = self._new_host()
        await self.host.start()

    def _new_host(self) -> tuple[FaultyCluster, Host, Sequence[Ledger]]:
        clocks = self._stage.clocks
        port = FaultyCluster(
            MemoryCluster(clocks, self._stage.server),
            clocks,
            self._chance.getrandbits(32),
            self._weights.faults,
            note=self._laws.note,
            note_event=self._laws.note_event,
            look=self._look,
        )
        options, ledgers = self._options(clocks, _NAME)
        return port, Host(self._configuration, port, options), ledgers
