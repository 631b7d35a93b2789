"""`--strict`: commands that place pods fail if a configured rule did not run.

Without the option they fail for a required plugin that did nothing at all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from berth_sim.commands.lapses import is_kept

NEGLECTED: Final = 4
"""Exit code: a required plugin never answered or was quarantined; with --strict, also for every lapse."""
_CI: Final = "CI"

strict_option: Final = click.option(
    "--strict/--no-strict",
    default=None,
    help="--strict: exit with 4 if a configured plugin was absent, failed or lacks an extension point."
    " --no-strict: also not if a required plugin never answered or was quarantined."
    "  [default: --strict if the environment has CI=true; else 4 for such a required plugin alone]",
)


def is_strict(given: bool | None) -> bool:
    """Return the value of the option; if it is not given, True if the environment has CI=true."""
    return os.environ.get(_CI) == "true" if given is None else given


def conclude(lapses: Sequence[str], failed_plugins: Sequence[str] = (), *, strict: bool | None) -> None:
    """Print the last line of a command that had lapses, on standard error.

    `failed_plugins`: required plugins that did nothing, as sentences. `strict`: the value of the option.
    Exits with 4 for a failed plugin unless `strict` is False, and for a lapse if the command is strict.
    """
    if failed_plugins and strict is not False:
        cure = "correct it, set `required: false` to place pods without it, or give --no-strict"
        click.echo(f"{'; '.join(failed_plugins)}; {cure}: exit code {NEGLECTED}", err=True)
        sys.exit(NEGLECTED)
    if not lapses:
        return
    if all(map(is_kept, lapses)):
        what, effect = "some calls of plugins failed, and their pods were tried again", "the rules hold"
    else:
        what, effect = "some rules of the configuration did not always run", "the result may violate them"
    fails = is_strict(strict)
    means = "exit code 4" if fails else f"{effect}; with --strict this is exit code 4"
    click.echo(f"{what} (see the warnings above): {means}", err=True)
    if fails:
        sys.exit(NEGLECTED)
