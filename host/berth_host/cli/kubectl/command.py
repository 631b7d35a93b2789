"""`kubectl berth why POD`, `why podgroup NAME`, `plugins` and `ui`: the answers of a running host.

Exit codes:
0 the pod is bound or the group placed, or the query was answered; 1 no answer (the host cannot be reached,
or denies access);
2 bad usage, also a wrong kubeconfig; 3 the pod or the group is pending; 4 it is unknown or deleted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, NoReturn
from urllib.parse import quote

import click

from berth_host import log
from berth_host.cli.commands import INTERRUPTED, LOOKS_EVERY_S, SETTINGS, Commands, Listed
from berth_host.cli.kubectl.asking import BAD_USAGE, NOT_FOUND, AskError, ask
from berth_host.cli.kubectl.passing import Passing
from berth_host.cli.kubectl.target import cluster_of, finding_options, server_options, target
from berth_host.cli.output import output_option
from berth_host.cli.page import address_text, port_option, stop_request
from berth_host.cli.rendering.running_plugins import running_plugins_text, running_states
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.rendering.why import pod_answer_text
from berth_host.cli.rendering.why_group import group_answer_text
from berth_host.endpoints.loopback import LoopbackServer
from berth_host.errors.cluster import ClientConfigError
from berth_host.errors.endpoints import EndpointError
from berth_host.explain.diagnosis import ATTEMPTS_KEPT
from berth_host.explain.group_answer import GroupAnswer, GroupWhere
from berth_host.explain.make_group_answer import WORDS
from berth_host.explain.pod_answer import PodAnswer, PodState
from berth_host.log.hidden import without_hidden

PENDING: Final = 3
PLUGINS_PATH: Final = "/berth/v1/plugins"
_OUTPUT = output_option("json and yaml print the host's answer and nothing else.")

watch_option = click.option(
    "--watch",
    is_flag=True,
    help="Print the list again whenever an instance or its state changes.",
)


@click.group(
    cls=Commands,
    context_settings=SETTINGS,
    listed={
        "drain": Listed(
            "berth_host.cli.kubectl.fit",
            "Say which pods of NODE could not move elsewhere, wait for a budget or would be lost.",
        ),
        "fit": Listed(
            "berth_host.cli.kubectl.fit",
            "Say where a pod would go now: the nodes that fit with their scores, or whom it would evict.",
        ),
        "queue": Listed("berth_host.cli.kubectl.queue", "List the pods that wait, by reason and by age."),
        "shadow": Listed(
            "berth_host.cli.kubectl.shadow", "Compare a shadow's decisions with the real scheduler's."
        ),
    },
)
@click.version_option(version("berth-host"), prog_name="kubectl berth", message="%(prog)s %(version)s")
def kubectl_berth() -> None:
    """Query the berth scheduler of a cluster."""


@kubectl_berth.command()
@click.argument("pod", metavar="POD")
@click.argument("group", metavar="[NAME]", default="")
@click.option(
    "-n", "--namespace", default="", help="Its namespace. Default: that of the context, or default."
)
@click.option("--node", metavar="NODE", default="", help="Print also why the pod is not on this node.")
@click.option(
    "--attempts",
    type=click.IntRange(1, ATTEMPTS_KEPT),
    default=1,
    show_default=True,
    help="List this number of the pod's last attempts.",
)
@_OUTPUT
@server_options
@finding_options
def why(pod: str, group: str, namespace: str, node: str, attempts: int, output: str, **options: Any) -> None:
    """Explain why POD (NAME, or NAMESPACE/NAME) has its node, or has none, and where it is in the queue.

    `why podgroup NAME` explains a group of pods; compositepodgroup or podgroup.scheduling.x-k8s.io in place
    of podgroup names the kind.

    Exit codes: 0 bound, 3 pending, 4 unknown or deleted, 1 no answer, 2 wrong usage.
    """
    log.configure("ERROR")
    if group:
        _why_group(pod, group, namespace, output, options)
    try:
        key = _key(pod, namespace, options)
        query = {"attempts": str(attempts)} | ({"node": node} if node else {})
        value = asyncio.run(asked(options, f"/berth/v1/pods/{key}", query))
        found = _read(value)
    except AskError as err:
        fail(err)
    if output in STRUCTURED:
        click.echo(serialized(value, output), nl=False)
    else:
        click.echo(pod_answer_text(found), nl=False)
    sys.exit({PodState.BOUND: 0, PodState.DELETED: NOT_FOUND}.get(found.state, PENDING))


def _why_group(word: str, name: str, namespace: str, output: str, options: Mapping[str, Any]) -> NoReturn:
    """Print the answer about a group, and exit. `word`: the kind, as the user wrote it."""
    try:
        if word.lower() not in WORDS:
            cure = f"one argument is a pod, two are the kind and the name of a group: {', '.join(WORDS)}"
            raise AskError(f"{word!r} is no kind of group: {cure}", BAD_USAGE)
        key = _key(name, namespace, options, "group")
        value = asyncio.run(asked(options, f"/berth/v1/podgroups/{key}", {"kind": word.lower()}))
        try:
            found = GroupAnswer.from_json(value)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise unreadable(err) from err
    except AskError as err:
        fail(err)
    if output in STRUCTURED:
        click.echo(serialized(value, output), nl=False)
    else:
        click.echo(group_answer_text(found), nl=False)
    sys.exit(0 if found.state is GroupWhere.SCHEDULED else PENDING)


@kubectl_berth.command()
@_OUTPUT
@server_options
@finding_options
@watch_option
def plugins(output: str, watch: bool, **options: Any) -> None:
    """List the host's plugins: their place, state and statistics."""
    log.configure("ERROR")
    show_running_plugins(options, output, watch=watch)


def show_running_plugins(options: Mapping[str, Any], output: str, *, watch: bool = False) -> None:
    """Print the answer of `/berth/v1/plugins`. Exits with the code of an error.

    `watch`: print the answer again whenever an instance or its state changes, until Ctrl-C.
    """
    try:
        if watch:
            asyncio.run(_watch(options, output))
        else:
            click.echo(_shown(asyncio.run(asked(options, PLUGINS_PATH)), output), nl=False)
    except AskError as err:
        fail(err)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@kubectl_berth.command()
@port_option
@server_options
@finding_options
def ui(port: int, **options: Any) -> None:
    """Serve the page of the cluster's scheduler on 127.0.0.1, until Ctrl-C.

    The page sees what your credentials may read: the right get on the nonResourceURL /berth/v1/* is
    enough, and the scheduler need not serve the page itself. Every user of this machine can open the page.
    """
    log.configure("ERROR")
    try:
        asyncio.run(_serve(options, port))
    except AskError as err:
        fail(err)


async def _serve(options: Mapping[str, Any], port: int) -> None:
    stopped = stop_request()
    async with Passing(options) as passing:
        server = LoopbackServer(passing.answer)
        try:
            await server.start(port)
            click.echo(address_text(server))
            await stopped.wait()
        except EndpointError as err:
            raise AskError(str(err), BAD_USAGE) from err
        finally:
            await server.stop()


async def _watch(options: Mapping[str, Any], output: str) -> None:
    """Query the host every second, over one connection. Raises AskError if the first query fails.

    Later errors are printed.
    """
    async with target(options) as host:
        value = await ask(host, PLUGINS_PATH)
        shown: list[tuple[Any, ...]] = []
        silence = ""
        while True:
            states = running_states(value)
            if states != shown:
                shown = states
                click.echo(_shown(value, output))
            await asyncio.sleep(LOOKS_EVERY_S)
            try:
                value, silence = await ask(host, PLUGINS_PATH), ""
            except AskError as err:
                if silence != str(err):
                    silence = str(err)
                    click.echo(f"error: {err}", err=True)


def _shown(value: dict[str, Any], output: str) -> str:
    if output in STRUCTURED:
        return serialized(value, output)
    try:
        return running_plugins_text(value)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise unreadable(err) from err


async def asked(
    options: Mapping[str, Any],
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Find the host, and return its answer. `body`: see `ask`. Raises AskError."""
    async with target(options) as host:
        return await ask(host, path, query, body)


def fail(err: AskError) -> NoReturn:
    """Print the error, and exit with its code."""
    click.echo(without_hidden(f"error: {err}"), err=True)
    sys.exit(err.exit_code)


def _key(pod: str, namespace: str, options: Mapping[str, Any], what: str = "pod") -> str:
    given, _, name = pod.rpartition("/")
    # "." and ".." would change the URL's path, and control characters the terminal.
    is_odd = "." in (given, name) or ".." in (given, name) or not f"{namespace}{pod}".isprintable()
    if is_odd or "/" in given or not name or (given and namespace and given != namespace):
        raise AskError(f"{pod!r} is not a {what} name: write NAME, or NAMESPACE/NAME without -n", BAD_USAGE)
    return f"{quote(given or namespace or _context_namespace(options), safe='')}/{quote(name, safe='')}"


def _context_namespace(options: Mapping[str, Any]) -> str:
    if options["server"] and not (options["kubeconfig"] or options["context"]):
        return "default"
    try:
        return cluster_of(options).namespace
    except ClientConfigError as err:
        raise AskError(str(err), BAD_USAGE) from err


def _read(value: Mapping[str, Any]) -> PodAnswer:
    try:
        return PodAnswer.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError) as err:
        raise unreadable(err) from err


def unreadable(err: Exception) -> AskError:
    """Return the error of an answer that has another shape than this version knows."""
    return AskError(
        f"the host's answer cannot be read ({type(err).__name__}: {err}): kubectl-berth"
        f" {version('berth-host')} may have another version than the host"
    )
