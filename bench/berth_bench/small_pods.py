"""The option `--small` of `berth bench own` and `versus`."""

from __future__ import annotations

from typing import Final

import click

small_option: Final = click.option(
    "--small",
    is_flag=True,
    help="Create pods that have only the fields that scheduling reads, as for figures of older versions:"
    " without env, probes, managedFields, owner and token volume.",
)
