"""`berth plugins`: the plugins that this installation finds, and the extension points of each.

With `--server`: the plugins of a running host, as `kubectl berth plugins` shows them. With `--folder`: the
plugins that are served at the sockets of a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from berth_host import log
from berth_host.cli import plugin_output
from berth_host.cli.commands import own_plugins
from berth_host.cli.folder_plugins import show_folder
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.kubectl.command import show_running_plugins, watch_option
from berth_host.cli.kubectl.target import server_options
from berth_host.cli.output import output_option
from berth_host.cli.rendering.columns import columns
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.config.default_plugins import DEFAULT_PLUGINS_BY_NAME, EXTENSION_POINTS
from berth_host.errors.plugins import PluginLoadError
from berth_host.plugins.registry import ClassRegistry, points_of_class


@click.command()
@output_option("json and yaml print one object and nothing else.")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False),
    help="List the plugins that the sockets of a folder serve.",
)
@server_options
@watch_option
def plugins(output: str, folder: str | None, watch: bool, **options: Any) -> None:
    """List default plugins and those installed under the entry point group berth.plugins.

    With --server the plugins of a running host: their place, state and statistics.
    With --folder the plugins that sidecars serve there, without a host.
    """
    log.configure("ERROR", for_people=True)
    if options["server"] and folder is None:
        show_running_plugins(options, output, watch=watch)
        return
    if folder is not None and not any(options.values()):
        show_folder(Path(folder), output, watch=watch)
        return
    if folder is not None:
        fail("--folder lists sockets, --server queries a running host: give one of them")
    if watch:
        fail("--watch needs --server or --folder: the installed plugins do not change")
    if any(options.values()):
        fail("connection options need --server; kubectl berth plugins finds the scheduler itself")
    with reported(), plugin_output.on_standard_error():
        rows = _rows()
    if output in STRUCTURED:
        value = {"plugins": [dict(zip(("name", "origin", "points"), row, strict=True)) for row in rows]}
        click.echo(serialized(value, output), nl=False)
    else:
        table = [(name, origin, ", ".join(points)) for name, origin, points in rows]
        click.echo(columns(("NAME", "ORIGIN", "POINTS"), table))


def _rows() -> list[tuple[str, str, list[str]]]:
    registry = ClassRegistry(own_plugins())
    rows = []
    for name in sorted({*DEFAULT_PLUGINS_BY_NAME, *registry.names}):
        default = DEFAULT_PLUGINS_BY_NAME.get(name)
        try:
            found = registry.find(name)
            points = points_of_class(name, found) if found is not None else frozenset[str]()
        except PluginLoadError as err:
            click.echo(f"warning: {err}", err=True)
            continue
        origin = "default" if default is not None else f"{found.__module__}" if found is not None else ""
        if found is None and default is not None:
            origin, points = "default, not in this build", default.points
        rows.append((name, origin, [point for point in EXTENSION_POINTS if point in points]))
    return rows
