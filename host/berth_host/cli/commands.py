"""`Commands`: click's group, with commands that are imported when they are needed, whole summaries in its
help, and the exit code of shells at Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""
LOOKS_EVERY_S: Final = 1.0
"""How often a command with `--watch` looks whether something has changed."""
SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The `context_settings` of a program's uppermost group."""


class Commands(click.Group):
    """A group, and the groups below it. `modules`: by the name of a command the module that defines it, as a
    function of the same name with `_` for `-`. Each is imported when its command is asked for: one command
    pays for none of the others, and completes faster.
    """

    group_class = type

    def __init__(self, *args: Any, modules: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._modules = modules or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, sorted."""
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None: there is none."""
        if cmd_name in self._modules and cmd_name not in self.commands:
            module = import_module(self._modules[cmd_name])
            self.add_command(getattr(module, cmd_name.replace("-", "_")), cmd_name)
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


def summary(command: click.Command) -> str:
    """The first paragraph of a command's help, as one line."""
    first, _, _ = (command.short_help or command.help or "").strip().partition("\n\n")
    return " ".join(first.split())
