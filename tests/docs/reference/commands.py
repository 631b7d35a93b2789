"""Generate docs/reference/command-line.md from the commands `berth` and `berth-sdk`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import click
from berth_host.cli.commands import Commands
from berth_host.cli.kubectl.command import kubectl_berth
from berth_host.cli.main import berth
from berth_sdk import __main__ as sdk_main

from docs.reference.markdown import code, one_line, table


def berth_commands() -> str:
    """Return every command of `berth`, with every option."""
    return "\n\n".join(_click_commands("berth", berth))


def kubectl_commands() -> str:
    """Return every command of `kubectl berth`, with every option."""
    return "\n\n".join(_click_commands("kubectl berth", kubectl_berth))


def sdk_commands() -> str:
    """Return every command of `berth-sdk`, with every option."""
    parser = sdk_main.build_parser()
    parts = list(_argparse_command(parser, parser.description or ""))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                parts += _argparse_command(command, f"{helps[name].capitalize()}.")
    return "\n\n".join(parts)


def _click_commands(path: str, command: click.Command) -> Iterator[str]:
    """Yield the text of a command, and of those below it."""
    yield from _click_command(path, command)
    if isinstance(command, Commands):
        for name, below in command.each(click.Context(command)).items():
            yield from _click_commands(f"{path} {name}", below)


def _click_command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path, help_option_names=["-h", "--help"])
    # A command keeps the help option of its first call, which a test may have made without the group's names.
    command._help_option = None
    yield f"### {path}"
    yield code(f"{path} {' '.join(command.collect_usage_pieces(context))}")
    yield "\n\n".join(one_line(part) for part in (command.help or "").split("\n\n"))
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            rows.append((code(record[0]), record[1]))
    yield table(("Option", "Meaning"), rows)


def _argparse_command(parser: argparse.ArgumentParser, description: str) -> Iterator[str]:
    yield f"### {parser.prog}"
    yield code(one_line(parser.format_usage().removeprefix("usage: ")))
    yield description
    rows = [_argparse_option(action) for action in parser._actions]
    yield table(("Option", "Meaning"), rows)


def _argparse_option(action: Any) -> tuple[str, str]:
    if action.option_strings:
        value = action.metavar or ("|".join(action.choices) if action.choices else "")
        return code(f"{', '.join(action.option_strings)} {value}".strip()), action.help or ""
    if isinstance(action, argparse._SubParsersAction):
        return code("COMMAND"), " or ".join(action.choices)
    return code(action.metavar), action.help or ""
