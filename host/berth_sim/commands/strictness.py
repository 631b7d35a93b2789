"""`--strict`: `simulate`, `why` and `bench` fail if a configured rule did not run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from berth_sim.commands.lapses import is_kept

NEGLECTED: Final = 4
"""Exit code: with --strict, a configured plugin was absent, failed or lacks a point."""
_CI: Final = "CI"

strict_option: Final = click.option(
    "--strict/--no-strict",
    default=None,
    help="Exit with 4 if a configured plugin was absent, failed or lacks an extension point."
    "  [default: --strict if the environment has CI=true]",
)


def is_strict(given: bool | None) -> bool:
    """Return the value of the option; if it is not given, True if the environment has CI=true."""
    return os.environ.get(_CI) == "true" if given is None else given


def conclude(lapses: Sequence[str], *, strict: bool) -> None:
    """Print the last line of a command that had lapses, on standard error. Exits with 4 if `strict`."""
    if not lapses:
        return
    if all(map(is_kept, lapses)):
        what, effect = "some calls of plugins failed, and their pods were tried again", "the rules hold"
    else:
        what, effect = "some rules of the configuration did not always run", "the result may violate them"
    means = "exit code 4" if strict else f"{effect}; with --strict this is exit code 4"
    click.echo(f"{what} (see the warnings above): {means}", err=True)
    if strict:
        sys.exit(NEGLECTED)
