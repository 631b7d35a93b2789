"""Bad input -> an error on standard error and exit code 2. Commands that read input use it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import click

from berth_host.config.errors import ConfigurationError
from berth_host.errors.manifests import ManifestError
from berth_host.errors.plugins import DuplicatePluginError, PluginLoadError
from berth_host.log.hidden import without_hidden

BAD_INPUT: Final = 2
INPUT_ERRORS: Final = (ConfigurationError, ManifestError, PluginLoadError, DuplicatePluginError)


@contextmanager
def reported() -> Iterator[None]:
    """Print errors in the input that the block raises, and exit with 2."""
    try:
        yield
    except INPUT_ERRORS as err:
        fail(str(err))


def fail(text: str) -> NoReturn:
    """Print the error `text` and exit with 2."""
    click.echo(without_hidden(text), err=True)
    sys.exit(BAD_INPUT)
