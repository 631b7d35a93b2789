"""`berth completion SHELL`: the script with which a shell completes the arguments of `berth`."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes this command in SHELL: bash, zsh or fish.

    In bash and zsh: eval "$(berth completion SHELL)"; in fish: berth completion fish | source.
    """
    root = click.get_current_context().find_root()
    name = root.info_name or "berth"
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"the installed click does not know {shell}")
    click.echo(script(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())
