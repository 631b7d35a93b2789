"""`Commands`: click's group, with commands that are imported when they run, untruncated summaries in its
help, and the exit code of shells at Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import click

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 plus the number of SIGINT, as in shells."""
LOOKS_EVERY_S: Final = 1.0
"""Seconds between two checks of a command with `--watch` for a change."""
SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The `context_settings` of a program's top group."""
ENTRY_POINTS: Final = "berth.commands"
"""The entry points by which other packages add commands to `berth`."""


class Listed(NamedTuple):
    """A command that is imported when it runs, and not when the group is listed.

    `module`: defines the command as a function, named as the command with `_` for `-`. `summary`: the first
    paragraph of the command's help.
    """

    module: str
    summary: str


class Elsewhere(NamedTuple):
    """A command of another package, which its distribution names in the entry points `berth.commands`.

    `package`: imported with the command. `summary`: as in `Listed`.
    """

    distribution: str
    package: str
    summary: str

    @property
    def cure(self) -> str:
        """The shell command that installs the distribution, also over one that is older than its code."""
        options = "" if find_spec(self.package) is None else "--force-reinstall --no-deps "
        return f"pip install {options}{self.distribution}"


class Commands(click.Group):
    """A group of commands, and the groups in it.

    `listed` and `elsewhere`: commands by name that are imported when they run. So a command does not import
    the others, and the help imports none.
    """

    group_class = type

    def __init__(
        self,
        *args: Any,
        listed: Mapping[str, Listed] | None = None,
        elsewhere: Mapping[str, Elsewhere] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._listed = listed or {}
        self._elsewhere = elsewhere or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, sorted."""
        return sorted({*super().list_commands(ctx), *self._listed, *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command `cmd_name`; None if there is none."""
        if cmd_name in self._listed and cmd_name not in self.commands:
            module = import_module(self._listed[cmd_name].module)
            self.add_command(getattr(module, cmd_name.replace("-", "_")), cmd_name)
        elif cmd_name in self._elsewhere and cmd_name not in self.commands:
            other = self._elsewhere[cmd_name]
            self.add_command(_installed(cmd_name, other.package) or _Missing(cmd_name, other.cure), cmd_name)
        return super().get_command(ctx, cmd_name)

    def each(self, ctx: click.Context) -> dict[str, click.Command]:
        """Return all commands, by name."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return {name: command for name, command in found if command is not None}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C ends the program with a message that names the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if ctx.parent is not None:
                raise
            click.echo(f"{ctx.command_path}: interrupted", err=True)
            sys.exit(INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for an option that precedes its command, with the cure."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as err:
            option, owners = err.option_name, self._owners(ctx, err.option_name)
            if not owners:
                raise
            named = next((word for word in words if word in owners), owners[0])
            place = f"write it behind the command, as in {ctx.command_path} {named} {option}"
            raise click.UsageError(f"No such option {option!r} here: {place}", ctx) from err

    def _owners(self, ctx: click.Context, option: str) -> list[str]:
        """Return the commands that have the option."""
        return [
            name
            for name, command in self.each(ctx).items()
            if any(option in (*param.opts, *param.secondary_opts) for param in command.params)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with the first paragraph of their help, untruncated."""
        summaries = {name: self.summary_of(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, text) for name, text in summaries.items() if text is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def summary_of(self, ctx: click.Context, name: str) -> str | None:
        """Return the first paragraph of a command's help, as one line; None for a hidden command."""
        if name in self._listed:
            return self._listed[name].summary
        if name in self._elsewhere:
            other = self._elsewhere[name]
            return other.summary if find_spec(other.package) is not None else _not_installed(other.cure)
        command = self.get_command(ctx, name)
        return None if command is None or command.hidden else summary(command)


class _Missing(click.Command):
    """The stand-in for a command whose distribution is not installed. Exits with 2, and names the cure."""

    def __init__(self, name: str, cure: str) -> None:
        self._cure = cure
        super().__init__(name, help=_not_installed(cure), add_help_option=False)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise UsageError, whatever the arguments are."""
        raise click.UsageError(f"{ctx.command_path} is not installed: {self._cure}")


def _not_installed(cure: str) -> str:
    return f"Not installed: {cure}"


def _installed(name: str, package: str) -> click.Command | None:
    """Return the command that `package` brings by an entry point, or None.

    An entry point of the same name into another package is ignored: it must not replace a command of berth.
    """
    # Not at the top: this import takes as long as all other imports of the help together.
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS, name=name):
        if point.module.partition(".")[0] != package:
            continue
        command = point.load()
        assert isinstance(command, click.Command)
        return command
    return None


def own_plugins() -> Mapping[str, type]:
    """Return the plugins of the program that runs the command; see `berth_host.run`."""
    plugins: Mapping[str, type] | None = click.get_current_context().obj
    return plugins or {}


def summary(command: click.Command) -> str:
    """Return the first paragraph of a command's help, as one line."""
    first, _, _ = (command.short_help or command.help or "").strip().partition("\n\n")
    return " ".join(first.split())
