"""`berth migrate`: a configuration of any version of kube-scheduler, written for berth.

Starts and connects nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from berth_host import log
from berth_host.cli import plugin_output
from berth_host.cli.commands import own_plugins
from berth_host.cli.configuration_text import read_text
from berth_host.cli.input_errors import fail, reported
from berth_host.cli.migration import Migration, OtherFile
from berth_host.cli.migration import migrate as migrated
from berth_host.cli.migration_list import list_object, list_text
from berth_host.cli.options import PATH, emulated_version_option, feature_gates_option, plugin_option
from berth_host.cli.rendering.serialized import STRUCTURED, serialized
from berth_host.cli.written_files import FilesExistError, TextFile, write_files
from berth_host.config.errors import ConfigurationError
from berth_host.log.hidden import without_hidden
from berth_host.plugins.registry import ClassRegistry

SCHEDULER_FILE: Final = "scheduler.yaml"
"""The file with both documents, as `--config` takes it."""
LIST_FILE: Final = "changes.txt"
"""The file with the list, if there is a change."""
NOT_WRITTEN: Final = 1
"""Exit code: the result could not be written."""


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(),
    help=f"Write {SCHEDULER_FILE} and {LIST_FILE} into this folder, instead of printing them.",
)
@click.option(
    "--berth-config",
    metavar="FILE",
    type=PATH,
    help="A BerthConfiguration to add. Its plugins stay in the profiles, with their arguments.",
)
@plugin_option
@feature_gates_option
@emulated_version_option
@click.option("--force", is_flag=True, help="With -o: replace files that have other content.")
@click.option("--raw", is_flag=True, help="Without -o: print secrets, too. With -o they are always written.")
@click.option(
    "--report",
    type=click.Choice(("text", *STRUCTURED)),
    default="text",
    show_default=True,
    help="The form of the list on standard error. json and yaml print one object and nothing else there.",
)
def migrate(
    file: str,
    folder: str | None,
    berth_config: str | None,
    plugins: dict[str, frozenset[str]],
    feature_gates: dict[str, bool],
    emulated_version: str,
    *,
    force: bool,
    raw: bool,
    report: str,
) -> None:
    """Write FILE (- for standard input), a configuration of any version of kube-scheduler, for berth.

    Reads a KubeSchedulerConfiguration (v1alpha1 to v1), a Policy in YAML or JSON, or the ConfigMap of a
    Policy. Prints a KubeSchedulerConfiguration v1, and the BerthConfiguration if there is one. The list of
    what changed and what has no equivalent goes to standard error. Plugins that berth lacks are left out and
    listed. FILE stays as it is. Exits 2 if FILE cannot be used, and 1 if the result cannot be written.
    """
    log.configure("ERROR", for_people=True)
    if file == "-" == berth_config:
        fail("FILE and --berth-config are both -: standard input can be read once")
    if folder == "":
        fail("-o is empty: name a folder")
    try:
        other = None if berth_config is None else OtherFile(**_text_of(berth_config))
        with plugin_output.on_standard_error():
            with reported():
                registered = ClassRegistry(own_plugins()).points()
            result = migrated(
                **_text_of(file),
                registered=registered,
                feature_gates=feature_gates,
                emulated_version=emulated_version,
                given=plugins,
                berth_file=other,
            )
    except ConfigurationError as err:
        for warning in err.warnings:
            click.echo(without_hidden(f"warning: {warning}"), err=True)
        fail(err.text)
    paths = [] if folder is None else _written(result, Path(folder), force=force)
    _report(result, paths, report)
    if folder is None:
        _print(result, report, raw=raw)


def _text_of(file: str) -> dict[str, str]:
    source = "standard input" if file == "-" else file
    return {"text": read_text(file, source), "source": source}


def _written(result: Migration, folder: Path, *, force: bool) -> list[str]:
    """Write the files and return their paths. Exits with 2 if others are there, with 1 if writing fails."""
    files = [TextFile(SCHEDULER_FILE, result.text, result.holds_secrets)]
    if result.remarks:
        files.append(TextFile(LIST_FILE, without_hidden(list_text(result))))
    try:
        done = write_files(folder, files, force=force)
    except FilesExistError as err:
        names = " and ".join(map(str, err.paths))
        fail(f"{names} has other content: name another folder, or replace it with --force")
    except OSError as err:
        where = err.filename if isinstance(err.filename, str) else folder
        problem = f"the result cannot be written: {where}: {err.strerror}"
        click.echo(f"berth migrate: {problem}: nothing was changed; name another folder", err=True)
        sys.exit(NOT_WRITTEN)
    for path, is_new in done:
        click.echo(f"{path} {'written' if is_new else 'unchanged'}")
    return [str(path) for path, _ in done]


def _report(result: Migration, paths: list[str], report: str) -> None:
    is_object = report in STRUCTURED
    text = serialized(list_object(result, paths), report) if is_object else list_text(result)
    click.echo(without_hidden(text), nl=False, err=True)


def _print(result: Migration, report: str, *, raw: bool) -> None:
    """Print the documents as UTF-8, whatever the locale is, as the file has to be."""
    if result.holds_secrets and not raw and report not in STRUCTURED:
        message = "secrets are not shown: -o DIR writes them into a file for its owner, and --raw prints them"
        click.echo(f"warning: {message}", err=True)
    click.echo((result.text if raw else result.shown).encode(), nl=False)
