"""`--force` of `berth drain` and `kubectl berth drain`, with the meaning of `kubectl drain --force`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

force_option: Final = click.option(
    "--force",
    is_flag=True,
    help="Let pods without a controller go, as kubectl drain --force does: nobody makes them anew. Without it"
    " they are a reason for exit code 3.",
)


def is_refused(answer: Mapping[str, Any], force: bool) -> bool:
    """Return True if `kubectl drain` would refuse the node for its pods without a controller."""
    # An older host does not count them.
    return bool(answer.get("unmanaged")) and not force
