"""`berth plugins --folder`: the instances at the sockets of a folder, and their plugins.

The only call is the handshake, which has no effect on an instance or on a host that is attached to it.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.rfc3339 import format_time

from berth_host.attach.configured_places import Place
from berth_host.attach.dialing import dial
from berth_host.attach.folder import Identity, sockets_in
from berth_host.attach.identity_calls import Greeting, IdentityCalls
from berth_host.attach.peer import DialError
from berth_host.cli.commands import INTERRUPTED, LOOKS_EVERY_S
from berth_host.cli.input_errors import fail
from berth_host.cli.rendering.columns import columns
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.errors.plugins import PluginError
from berth_host.rpc.served.statuses import plain

_POINTS: Final = {point.value: point.config_name for point in ExtensionPoint}


def show_folder(folder: Path, output: str, *, watch: bool) -> None:
    """Print one row per instance and plugin; with `watch`, print them again at every change.

    Exits with 2 if the folder cannot be read.
    """
    try:
        asyncio.run(_show(folder.absolute(), output, watch=watch))
    except OSError as err:
        fail(f"{folder}: {err.strerror}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


async def _show(folder: Path, output: str, *, watch: bool) -> None:
    shown = None
    while True:
        sockets, problem = _looked_through(folder)
        found = await asyncio.gather(*(_introduction(path) for path, _, _ in sockets))
        if (found, problem) != shown:
            shown = found, problem
            click.echo(_text(found, output), nl=watch)
            if problem:
                click.echo(f"warning: {problem}", err=True)
            elif not sockets and not watch:
                click.echo(
                    f"no sockets in {folder}: a sidecar's socket appears when the sidecar listens there",
                    err=True,
                )
        if not watch:
            return
        await asyncio.sleep(LOOKS_EVERY_S)


def _looked_through(folder: Path) -> tuple[list[Identity], str]:
    """Return the sockets of the folder, and a warning or "". Raises OSError if the folder cannot be read."""
    next(folder.iterdir(), None)
    return sockets_in(folder)


async def _introduction(path: str) -> dict[str, Any]:
    endpoint = f"unix://{path}"
    place = Place(endpoint=endpoint, plugins=())
    try:
        channel = dial(endpoint, place)
    except DialError as err:
        return {"place": endpoint, "error": str(err), "plugins": []}
    greeting = Greeting(host_version=version("berth-host"), epoch=1, features=(), credential="")
    try:
        reply = await IdentityCalls(channel, place, secrets.token_hex(8), path).shake_hands(greeting)
    except (DialError, PluginError) as err:
        return {"place": endpoint, "error": str(err), "plugins": []}
    finally:
        await channel.close()
    return {
        "place": endpoint,
        "error": "",
        "instance": reply.instance_id,
        "startedAt": _time_of(reply.started_at.seconds),
        "plugins": [
            {
                "name": plugin.name,
                "version": plugin.version,
                "points": [_POINTS.get(number, str(number)) for number in plugin.points],
            }
            for plugin in reply.plugins
        ],
    }


def _time_of(unix_s: int) -> str:
    """Return the time as text; `?` for a number that is no time, as an instance may send any number."""
    try:
        return format_time(unix_s)
    except (OverflowError, ValueError, OSError):
        return "?"


def _text(found: list[dict[str, Any]], output: str) -> str:
    if output in STRUCTURED:
        return serialized({"instances": found}, output)
    rows = [
        tuple(map(plain, (plugin["name"], one["place"], one["instance"][:8], one["startedAt"], points)))
        for one in found
        for plugin in one["plugins"]
        for points in [", ".join(plugin["points"])]
    ]
    parts = [columns(("NAME", "PLACE", "INSTANCE", "STARTED", "POINTS"), rows)]
    problems = [plain(f"{one['place']} {one['error']}") for one in found if one["error"]]
    return "\n\n".join(filter(None, (*parts, "\n".join(problems)))) + "\n"
