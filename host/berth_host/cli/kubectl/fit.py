"""`kubectl berth fit` and `kubectl berth drain`: questions to a running host that change nothing.

Exit codes: 0 the pod fits, or all pods could leave; 3 it does not, or some could not or would be lost; 4
there is no such node; 1 no answer; 2 wrong usage.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import click

from berth_host import log
from berth_host.cli import standard_input
from berth_host.cli.drain_force import force_option, is_refused
from berth_host.cli.input_errors import reported
from berth_host.cli.kubectl.asking import BAD_USAGE, AskError
from berth_host.cli.kubectl.command import asked, fail, unreadable
from berth_host.cli.kubectl.target import finding_options, server_options
from berth_host.cli.options import PATH
from berth_host.cli.output import output_option
from berth_host.cli.rendering.fit import drain_text, fit_text
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.process.pod_file import pod_in

DOES_NOT_FIT: Final = 3
_OUTPUT: Final = output_option("json and yaml print the host's answer and nothing else.")


@click.command()
@click.option(
    "-f", "--filename", "path", type=PATH, required=True, help="File with a pod or a workload; - for input."
)
@_OUTPUT
@server_options
@finding_options
def fit(path: str, output: str, **options: Any) -> None:
    """Say where a pod would go now: the nodes that fit with their scores, or whom it would evict.

    The scheduler asks its plugins between two pods, and places nothing. Its user needs the verb post on the
    nonResourceURL /berth/v1/fit.

    Exit codes: 0 it fits, 3 it does not or is kept out of the queue, 1 no answer, 2 wrong usage.
    """
    log.configure("ERROR")
    with reported():
        manifest = pod_in(path, standard_input.read_text)
    value = _asked(options, "/berth/v1/fit", output, fit_text, manifest)
    sys.exit(0 if value.get("node") and not value.get("gates") else DOES_NOT_FIT)


@click.command()
@click.argument("node", metavar="NODE")
@_OUTPUT
@server_options
@finding_options
@force_option
def drain(node: str, output: str, force: bool, **options: Any) -> None:
    """Say which pods of NODE could not move elsewhere, wait for a budget or would be lost.

    Nothing is evicted.

    Exit codes: 0 all pods could leave, 3 some could not or have no controller, 4 no such node, 1 no answer,
    2 wrong usage.
    """
    log.configure("ERROR")
    if not node or "/" in node or node in (".", "..") or not node.isprintable():
        fail(AskError(f"{node!r} is not the name of a node", BAD_USAGE))
    value = _asked(options, f"/berth/v1/nodes/{quote(node, safe='')}/drain", output, drain_text)
    sys.exit(DOES_NOT_FIT if value.get("stuck") or value.get("blocked") or is_refused(value, force) else 0)


def _asked(
    options: Mapping[str, Any],
    path: str,
    output: str,
    text: Callable[[Mapping[str, Any]], str],
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Ask the host, print the answer, and return it. Exits with the code of an error."""
    try:
        value = asyncio.run(asked(options, path, None, body))
        try:
            shown = serialized(value, output) if output in STRUCTURED else text(value)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise unreadable(err) from err
    except AskError as err:
        fail(err)
    click.echo(shown, nl=False)
    return value
