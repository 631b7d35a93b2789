"""`--strict`: a configured rule that did not run makes `simulate`, `why` and `bench` fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import click

NEGLECTED: Final = 4
"""Exit code: with --strict, a configured plugin was absent, failed, overran or lacks a point."""
_CI: Final = "CI"

strict_option: Final = click.option(
    "--strict/--no-strict",
    default=None,
    help="Exit with 4 if a configured plugin was absent, failed, answered late or lacks an extension point."
    "  [default: --strict if the environment has CI=true]",
)


def is_strict(given: bool | None) -> bool:
    """As the user says, or as the environment does."""
    return os.environ.get(_CI) == "true" if given is None else given


def conclude(lapses: Sequence[str], *, strict: bool) -> None:
    """The last line of a command, on standard error, where there were lapses. Exits where it is strict."""
    if not lapses:
        return
    means = "exit code 4" if strict else "the result may violate them; with --strict this is exit code 4"
    click.echo(
        f"some rules of the configuration did not always run (see the warnings above): {means}", err=True
    )
    if strict:
        sys.exit(NEGLECTED)
