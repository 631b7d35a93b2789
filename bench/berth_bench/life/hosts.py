"""`Hosts`: the hosts of one life, as the life and its world see them."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from berth_host.app import Host, HostOptions
from berth_host.config.configuration import LoadedConfiguration
from berth_host.model.clock import Clock

from berth_bench.life.plugins import Ledger

KINDS: Final = ("cut", "restart", "reload", "kill", "pause", "step", "reset", "compact", "lag")
"""The kinds of acts of hosts."""


@dataclass(frozen=True, slots=True)
class Act:
    """A kind of act. `name`: the kind. `gap_s`: the mean seconds between two. `do`: acts once, with a
    generator of the kind's own.
    """

    name: str
    gap_s: float
    do: Callable[[random.Random], Awaitable[None]]


Configurations: TypeAlias = Callable[[random.Random | None], LoadedConfiguration]
"""Returns a drawn configuration; without a generator, the first one."""

MakeOptions: TypeAlias = Callable[[Clock, str], tuple[HostOptions, Sequence[Ledger]]]
"""Makes the options of a host, by its clock and its name. Returns them with the ledgers of the instances of
its plugin, the newest last.
"""


class Hosts(Protocol):
    """The hosts of one life, and their way to the API server, with what may fail there."""

    @property
    def host(self) -> Host:
        """The host that schedules. At a time without one: the host that scheduled last."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The records of the plugin of `host`."""
        ...

    @property
    def machine(self) -> str:
        """The name of the machine of `host`; "" for the only one."""
        ...

    def following(self) -> Sequence[tuple[Host, Ledger]]:
        """Return the hosts that follow the cluster, each with the records of its plugin.

        One of them schedules; the others stand by.
        """
        ...

    def acts(self) -> Sequence[Act]:
        """Return what happens to hosts and to their API server in this life."""
        ...

    async def start(self) -> None:
        """Start; return when the first host has all objects."""
        ...

    def check(self) -> None:
        """Raise the error that a host stopped with, and LawBrokenError."""
        ...

    def behave(self) -> None:
        """Let nothing fail and nothing be late from now on."""
        ...

    async def settle(self) -> None:
        """Wait, after the last act, until a host schedules again."""
        ...

    async def stop(self) -> None:
        """Stop all hosts."""
        ...

    def kill(self) -> None:
        """End all hosts at once, where a law was broken."""
        ...
