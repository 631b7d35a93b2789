"""`kubectl berth queue`: the pods that wait in a running host, by reason and by age."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import click

from berth_host import log
from berth_host.cli.kubectl.asking import AskError
from berth_host.cli.kubectl.command import asked, fail, unreadable
from berth_host.cli.kubectl.target import finding_options, server_options
from berth_host.cli.output import output_option
from berth_host.cli.rendering.queue import queue_text
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.explain.queue_answer import ORDERS, PARTS, QUEUE_LAST

PATH: Final = "/berth/v1/queue"
WIDE: Final = "wide"


@click.command()
@click.option("--part", type=click.Choice(PARTS), default=None, help="Only pods in this part of the queue.")
@click.option(
    "--reason",
    metavar="PLUGIN|TEXT",
    default="",
    help="Only pods that this plugin keeps, or that wait for this reason, as the table has them.",
)
@click.option(
    "--contains", metavar="TEXT", default="", help="Only pods with this text in their name or their reason."
)
@click.option(
    "--order", type=click.Choice(tuple(ORDERS)), default="oldest", show_default=True, help="The first pods."
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="The most pods to list."
)
@click.option(
    "--offset",
    type=click.IntRange(min=0, max=QUEUE_LAST),
    default=0,
    metavar="N",
    help="Leave out the first N pods.",
)
@output_option("json and yaml print the host's answer; wide adds columns.", WIDE)
@server_options
@finding_options
def queue(limit: int, offset: int, order: str, output: str, **options: Any) -> None:
    """List the pods that wait, by reason and by age.

    Pods of all namespaces: first how many wait for which reason, then the pods.
    """
    log.configure("ERROR")
    query = {"limit": str(limit), "offset": str(offset), "order": order}
    chosen = {name: options.pop(name) for name in ("part", "reason", "contains")}
    query |= {name: value for name, value in chosen.items() if value}
    try:
        value = asyncio.run(asked(options, PATH, query))
        if output in STRUCTURED:
            click.echo(serialized(value, output), nl=False)
            return
        try:
            text = queue_text(value, is_wide=output == WIDE)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise unreadable(err) from err
    except AskError as err:
        fail(err)
    click.echo(text, nl=False)
