"""`-o`: the forms in which every command prints its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from berth_host.cli.rendering.serialized import STRUCTURED

Command = TypeVar("Command", bound=Callable[..., Any])
OUTPUTS: Final = ("table", *STRUCTURED)


def output_option(meaning: str, *more: str) -> Callable[[Command], Command]:
    """Return the option `-o`, with the same choices in every command. `meaning`: its help text.

    `more`: further choices of one command.
    """
    return click.option(
        "-o",
        "--output",
        type=click.Choice((*OUTPUTS, *more)),
        default="table",
        show_default=True,
        help=meaning,
    )
