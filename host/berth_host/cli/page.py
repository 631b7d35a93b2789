"""Parts of `berth ui` and `kubectl berth ui`: the option for the port, the address, the end at a signal."""

from __future__ import annotations

import asyncio
import signal
from typing import Final

import click

from berth_host.endpoints.loopback import LoopbackServer

DEFAULT_PORT: Final = 8610

port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the page on 127.0.0.1; 0: any free one.",
)


def stop_request() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, in the running loop."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


def address_text(server: LoopbackServer) -> str:
    """Return the line that names the address of the page."""
    return f"serving the page at {server.url} (Ctrl-C ends it)"
