"""`berth check-config`: the meaning of a configuration file, or all errors in it.

Loads the file, and starts and connects nothing.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NoReturn

import click

from berth_host import log
from berth_host.cli import plugin_output
from berth_host.cli.commands import own_plugins
from berth_host.cli.configuration import load_text
from berth_host.cli.configuration_text import read_text
from berth_host.cli.input_errors import BAD_INPUT, reported
from berth_host.cli.options import (
    against_option,
    emulated_version_option,
    feature_gates_option,
    no_convert_option,
    plugin_option,
)
from berth_host.cli.output import output_option
from berth_host.cli.rendering.configuration import document_text, file_text
from berth_host.cli.versions_compared import VersionsCompared
from berth_host.config.berth.configuration import BerthConfiguration, BerthPlugin
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.config.decoding.types_v1 import PLUGIN_SETS
from berth_host.config.default_plugins import FIT, MULTI_POINT, WEIGHTED_POINTS
from berth_host.config.errors import ConfigurationError
from berth_host.config.rendering import configuration_to_json, error_to_json
from berth_host.log.hidden import without_hidden
from berth_host.log.secrets import masked, masked_arguments, masked_object
from berth_host.plugins.registry import ClassRegistry

_POINTS_AS_THEY_RUN: Final = tuple(point for point in PLUGIN_SETS if point != MULTI_POINT)
_LABEL_WIDTH: Final = 18
_LINE_WIDTH: Final = 110


@click.command("check-config")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@output_option("json: one object with the result. yaml: the file itself, as v1, to be saved.")
@no_convert_option
@plugin_option
@feature_gates_option
@emulated_version_option
@against_option
def check_config(
    file: str,
    output: str,
    no_convert: bool,
    plugins: dict[str, frozenset[str]],
    feature_gates: dict[str, bool],
    emulated_version: str,
    against: str,
) -> None:
    """Check FILE (- for standard input) and print the effective configuration.

    Reads a KubeSchedulerConfiguration and, beside it or alone, a BerthConfiguration. An older
    KubeSchedulerConfiguration or a Policy is converted to v1, with a warning for each change. Shows the
    plugins of every profile in the order in which they run. With --against, lists what another version of
    kube-scheduler does otherwise with the file. Exits 2 if the file cannot be used.
    """
    log.configure("ERROR", for_people=True)
    source = "standard input" if file == "-" else file
    try:
        text = read_text(file, source)
        with plugin_output.on_standard_error():
            with reported():
                registered = ClassRegistry(own_plugins()).points()

            def load(version: str) -> LoadedConfiguration:
                return load_text(
                    text,
                    source,
                    registered,
                    feature_gates=feature_gates,
                    emulated_version=version,
                    convert_older=not no_convert,
                    given=plugins,
                    cure="; install or mend it, or check the file without it: --plugin {}=POINT,POINT".format,
                )

            loaded = load(emulated_version)
            compared = _compared(loaded, against, load) if against else None
    except ConfigurationError as err:
        _fail(err, output)
    loaded = replace(loaded, warnings=(*loaded.warnings, *_not_here(loaded.berth)))
    if output == "json":
        shown = configuration_to_json(loaded)
        if isinstance(compared, VersionsCompared):
            shown["compared"] = compared.to_json()
        elif compared is not None:
            shown["compared"] = {"against": against, **error_to_json(compared)}
        click.echo(without_hidden(json.dumps(masked_object(shown))))
        return
    for warning in loaded.warnings:
        click.echo(without_hidden(f"warning: {warning}"), err=True)
    if output == "yaml":
        click.echo(file_text(loaded), nl=False)
        return
    for line in _report(source, loaded):
        click.echo(line)
    for line in _comparison(compared, against):
        click.echo(without_hidden(line))


def _compared(
    loaded: LoadedConfiguration, against: str, load: Callable[[str], LoadedConfiguration]
) -> VersionsCompared | ConfigurationError:
    """Return the differences to another version; its error if that version cannot use the file."""
    try:
        return VersionsCompared.of(loaded, load(against))
    except ConfigurationError as err:
        return err


def _comparison(compared: VersionsCompared | ConfigurationError | None, against: str) -> Iterator[str]:
    if compared is None:
        return
    yield ""
    if isinstance(compared, ConfigurationError):
        yield f"kube-scheduler {against} cannot use the file:"
        yield from textwrap.indent(compared.text, "  ").splitlines()
        return
    yield f"compared with kube-scheduler {compared.against}"
    for heading, rows in compared.lines():
        yield ""
        yield heading
        yield from _table(rows)


def _fail(error: ConfigurationError, output: str) -> NoReturn:
    if output == "json":
        click.echo(without_hidden(json.dumps(masked_object(error_to_json(error)))))
    else:
        for warning in error.warnings:
            click.echo(f"warning: {warning}", err=True)
        click.echo(without_hidden(error.text), err=True)
    sys.exit(BAD_INPUT)


def _not_here(berth: BerthConfiguration) -> Iterator[str]:
    """Yield a warning per command that is not on this machine. No errors: the host may run elsewhere."""
    for index, plugin in enumerate(berth.plugins):
        if plugin.command and shutil.which(plugin.command[0]) is None:
            problem = f"{plugin.command[0]!r} is not an executable program on this machine"
            yield f"plugins[{index}].command: {problem}; the host's machine must have it"


def _report(source: str, loaded: LoadedConfiguration) -> Iterator[str]:
    count = len(loaded.profiles)
    yield f"{source} is valid: {count} profile{'s' if count > 1 else ''}"
    if loaded.converted_from is not None:
        yield f"converted from {loaded.converted_from}; -o yaml prints it as the file to save:"
        yield ""
        yield from textwrap.indent(document_text(loaded), "  ").splitlines()
    yield ""
    yield from _table(_settings(loaded))
    for profile in loaded.profiles:
        yield ""
        yield f"profile {profile.scheduler_name}"
        yield from _table(_points(profile))
    if loaded.berth.plugins:
        yield ""
        yield "plugins outside the default set"
        yield from _table({plugin.name: _where(plugin) for plugin in loaded.berth.plugins})


def _settings(loaded: LoadedConfiguration) -> dict[str, str]:
    scheduler = loaded.scheduler
    election = scheduler.leader_election
    rows = {
        "nodes scored": _share(scheduler.percentage_of_nodes_to_score),
        "pod backoff": f"{scheduler.pod_initial_backoff_s} s to {scheduler.pod_max_backoff_s} s",
        "leader election": f"lease {election.resource_namespace}/{election.resource_name}"
        if election.leader_elect
        else "off",
        "cycle budget": f"{loaded.berth.cycle_budget_s:g} s of calls to served plugins",
    }
    if loaded.emulation.version:
        rows["emulates"] = f"kube-scheduler {loaded.emulation.version}"
    if scheduler.extenders:
        rows["HTTP extenders"] = ", ".join(
            str(masked(extender.url_prefix)) or '""' for extender in scheduler.extenders_in_turn
        )
    return rows


def _share(percentage: int) -> str:
    return f"{percentage} %" if 0 < percentage < 100 else "all"


def _points(profile: ResolvedProfile) -> dict[str, str]:
    rows = {}
    if profile.percentage_of_nodes_to_score is not None:
        rows["nodes scored"] = _share(profile.percentage_of_nodes_to_score)
    for point in _POINTS_AS_THEY_RUN:
        shown = [
            f"{plugin.name} x{plugin.weight}" if point in WEIGHTED_POINTS else plugin.name
            for plugin in profile.plugins_at(point)
        ]
        if shown:
            rows[point] = ", ".join(shown)
    return rows


def _where(plugin: BerthPlugin) -> str:
    place = plugin.endpoint or plugin.in_process or " ".join(masked_arguments(plugin.command or ()))
    place = f"{place}, required" if plugin.required else place
    if not plugin.managed_resources:
        return place
    left = f"; {FIT} leaves {', '.join(plugin.left_to_it)} to it" if plugin.left_to_it else ""
    return f"{place}; manages {', '.join(plugin.managed_names)}{left}"


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    width = max(_LABEL_WIDTH, *(len(label) + 2 for label in rows))
    for label, text in rows.items():
        yield textwrap.fill(
            text,
            width=_LINE_WIDTH,
            initial_indent=f"  {label:<{width}}",
            subsequent_indent=" " * (width + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
