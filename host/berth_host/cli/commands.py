"""`Commands`: click's group, with commands that are imported when they are needed, whole summaries in its
help, and the exit code of shells at Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

import click

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""
LOOKS_EVERY_S: Final = 1.0
"""How often a command with `--watch` looks whether something has changed."""
SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The `context_settings` of a program's uppermost group."""
ENTRY_POINTS: Final = "berth.commands"
"""The entry points by which other distributions add commands to `berth`."""


class Commands(click.Group):
    """A group, and the groups below it. `modules`: by the name of a command the module that defines it, as a
    function of the same name with `_` for `-`. `elsewhere`: by the name of a command the distribution that
    brings it, by an entry point of the group `berth.commands`. Each is imported when its command is
    asked for: one command pays for none of the others, and completes faster.
    """

    group_class = type

    def __init__(
        self,
        *args: Any,
        modules: Mapping[str, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self._modules = modules or {}
        self._elsewhere = elsewhere or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, sorted."""
        return sorted({*super().list_commands(ctx), *self._modules, *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None: there is none."""
        if cmd_name in self._modules and cmd_name not in self.commands:
            module = import_module(self._modules[cmd_name])
            self.add_command(getattr(module, cmd_name.replace("-", "_")), cmd_name)
        elif cmd_name in self._elsewhere and cmd_name not in self.commands:
            self.add_command(_installed(cmd_name) or _Missing(cmd_name, self._elsewhere[cmd_name]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def each(self, ctx: click.Context) -> dict[str, click.Command]:
        """All of them, by name."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return {name: command for name, command in found if command is not None}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends the program without a word of click's own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if ctx.parent is not None:
                raise
            click.echo(f"{ctx.command_path}: interrupted", err=True)
            sys.exit(INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """An option of a command that stands before it is an error that says where it belongs."""
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
        """The commands that have the option."""
        return [
            name
            for name, command in self.each(ctx).items()
            if any(option in (*param.opts, *param.secondary_opts) for param in command.params)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with the first paragraph of their help, in as many lines as it takes."""
        rows = [(name, summary(command)) for name, command in self.each(ctx).items() if not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class _Missing(click.Command):
    """Stands for a command whose distribution is not installed. Exits with 2, and says how to get it."""

    def __init__(self, name: str, distribution: str) -> None:
        self._cure = f"pip install {distribution}"
        super().__init__(name, help=f"Not installed: {self._cure}", add_help_option=False)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Raise UsageError, whatever the arguments are."""
        raise click.UsageError(f"{ctx.command_path} is not installed: {self._cure}")


def _installed(name: str) -> click.Command | None:
    """Return the command that an installed distribution brings by an entry point, or None."""
    for point in entry_points(group=ENTRY_POINTS, name=name):
        command = point.load()
        assert isinstance(command, click.Command)
        return command
    return None


def summary(command: click.Command) -> str:
    """The first paragraph of a command's help, as one line."""
    first, _, _ = (command.short_help or command.help or "").strip().partition("\n\n")
    return " ".join(first.split())
