"""`kubectl berth shadow`: how the decisions of a running shadow compare with the real scheduler's."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import click

from berth_host import log
from berth_host.cli.kubectl.asking import AskError
from berth_host.cli.kubectl.command import asked, fail, unreadable
from berth_host.cli.kubectl.target import finding_options, server_options
from berth_host.cli.output import output_option
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.rendering.shadow import shadow_text

PATH: Final = "/berth/v1/shadow"


@click.command()
@output_option("json and yaml print the shadow's answer and nothing else.")
@server_options
@finding_options
def shadow(output: str, **options: Any) -> None:
    """Compare a shadow's decisions with the real scheduler's.

    The shadow is a `berth scheduler --shadow`. The table has the outcomes, the plugins that made differences,
    and the last differences.
    """
    log.configure("ERROR")
    try:
        value = asyncio.run(asked(options, PATH))
        if output in STRUCTURED:
            click.echo(serialized(value, output), nl=False)
            return
        try:
            text = shadow_text(value)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise unreadable(err) from err
    except AskError as err:
        fail(err)
    click.echo(text, nl=False)
