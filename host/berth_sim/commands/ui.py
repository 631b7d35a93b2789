"""`berth ui`: run the simulation, and serve it as a page until Ctrl-C.

The host stays until the end, so the page shows the pods while they are scheduled, and what is pending after
that.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import click
from berth_host.app import Host
from berth_host.cli import plugin_output
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.page import address_text, port_option, stop_request
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.endpoints.pages import Answers
from berth_host.errors.endpoints import EndpointError
from berth_host.process import event_loop

from berth_sim.commands.simulate import input_options, prepared
from berth_sim.commands.simulation import Prepared, hosted


@dataclass(frozen=True, slots=True)
class Simulated:
    """The simulation as a process of the pages, and of the query service."""

    host: Host
    is_connected: bool = True
    is_leading: bool = True


@click.command()
@input_options
@port_option
def ui(port: int, **options: Any) -> None:
    """Place the pods of manifests on their nodes, as berth simulate does, and show it as a page.

    Prints the address of the page, and serves it until Ctrl-C. Every user of this machine can open it.
    """
    output = sys.stdout
    with reported():
        ready = prepared(options)
        with plugin_output.on_standard_error():
            try:
                event_loop.run(serve(ready, port, lambda text: click.echo(text, file=output), _Page))
            except EndpointError as err:
                fail(f"error: {err}")


class Serves(Protocol):
    """A server of questions to the simulation."""

    async def start(self, port: int) -> str:
        """Listen on `port`; 0: a free one. Return the line that names the address. Raises EndpointError."""
        ...

    async def stop(self) -> None:
        """Stop. Has no effect without `start`."""
        ...


async def serve(
    ready: Prepared, port: int, tell: Callable[[str], None], make: Callable[[Simulated], Serves]
) -> None:
    """Run the simulation, and serve what `make` returns, until a signal. `tell`: gets the address."""
    stopped = stop_request()
    async with hosted(ready, lambda text: click.echo(text, err=True)) as (host, settling):
        server = make(Simulated(host))
        running = waiting = None
        try:
            address = await server.start(port)
            running = asyncio.create_task(settling.run())
            waiting = asyncio.create_task(stopped.wait())
            tell(address)
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running  # its error ends the command
                await waiting
        finally:
            tasks = {task for task in (running, waiting) if task is not None}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await server.stop()


class _Page:
    """The page of the simulation."""

    def __init__(self, process: Simulated) -> None:
        self._server = LoopbackServer(Answers(process).answer)

    async def start(self, port: int) -> str:
        await self._server.start(port)
        return address_text(self._server)

    async def stop(self) -> None:
        await self._server.stop()
