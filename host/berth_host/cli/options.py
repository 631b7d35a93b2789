"""The options that several commands share: paths, older configurations, feature gates, emulated version."""

from __future__ import annotations

from typing import Any, Final, cast

import click

from berth_host.cli.scheduler.flag_kinds import EMULATED, EMULATED_HELP, GATES, emulated_version, gate_values
from berth_host.config.default_plugins import EXTENSION_POINTS
from berth_host.config.emulation import DEFAULT_VERSION
from berth_host.config.errors import nearest


class _Path(click.Path):
    """A path that is not empty: an empty path comes from an unset variable, and is not the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises BadParameter for an empty path."""
        if not value:
            self.fail("the path is empty: name a file or a folder, or - for standard input", param, ctx)
        return super().convert(value, param, ctx)


PATH: Final = _Path(allow_dash=True)
"""The type of paths that are read. Shells complete such paths. The reader of a path reports its problems."""


def only_one(_: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the value of an option that is given at most once. Raises BadParameter."""
    if len(values) > 1:
        raise click.BadParameter(
            f"it is given {len(values)} times, but only one is read: give one", param=param
        )
    return values[0] if values else None


no_convert_option: Final = click.option(
    "--no-convert", is_flag=True, help="Refuse older configurations, as kube-scheduler 1.37 does."
)
"""For all commands that read a configuration. Without the option, they convert older configurations to v1."""


def _gates(_: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, bool]:
    """Return the gates as `berth scheduler` does: the last value of a name counts. Raises BadParameter."""
    try:
        read = [gate for text in given for gate in cast(tuple[str, ...], GATES.read(text))]
        if GATES.check is not None:
            GATES.check(tuple(read))
    except ValueError as err:
        raise click.BadParameter(f"{','.join(given)!r}: {err}", param=param) from err
    return gate_values(tuple(read))


feature_gates_option: Final = click.option(
    "--feature-gates",
    multiple=True,
    callback=_gates,
    metavar=GATES.metavar,
    help="Feature gates that differ from the defaults of kube-scheduler 1.37.",
)
"""For all commands that read a configuration."""


def _emulated(_: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str:
    """Return the version as `berth scheduler` does; empty if it is not given. Raises BadParameter."""
    try:
        read = tuple(version for text in given for version in cast(tuple[str, ...], EMULATED.read(text)))
        if EMULATED.check is not None:
            EMULATED.check(read)
    except ValueError as err:
        raise click.BadParameter(f"{','.join(given)!r}: {err}", param=param) from err
    return emulated_version(read)


emulated_version_option: Final = click.option(
    "--emulated-version", multiple=True, callback=_emulated, metavar=EMULATED.metavar, help=EMULATED_HELP
)
"""For all commands that read a configuration."""


def _against(context: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str:
    """Return the version to compare with; empty if the option is not given. Raises BadParameter."""
    version = _emulated(context, param, given)
    if given and not version:
        raise click.BadParameter(f"'': name a version, as {DEFAULT_VERSION}", param=param)
    return version


against_option: Final = click.option(
    "--against",
    multiple=True,
    callback=_against,
    metavar=EMULATED.metavar,
    help="Compare with this version of kube-scheduler: list the behaviours, feature gates, settings and"
    " plugins that differ.",
)
"""For commands that compare versions."""


def _points_by_plugin(
    _: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, frozenset[str]]:
    """Return the extension points by plugin. Raises BadParameter."""
    parsed: dict[str, frozenset[str]] = {}
    for spec in given:
        name, equals, listed = spec.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{spec!r} is not NAME=POINT,POINT", param_hint="--plugin")
        points = [point for point in listed.split(",") if point]
        for point in points:
            if point not in EXTENSION_POINTS:
                cure = nearest(point, EXTENSION_POINTS)
                message = f"no extension point {point!r}"
                message += f"; did you mean {cure!r}?" if cure else f"; use {', '.join(EXTENSION_POINTS)}"
                raise click.BadParameter(message, param_hint="--plugin")
        if name in parsed:
            raise click.BadParameter(f"plugin {name!r} is given twice", param_hint="--plugin")
        parsed[name] = frozenset(points)
    return parsed


plugin_option: Final = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    callback=_points_by_plugin,
    metavar="NAME=POINT,POINT...",
    help="A plugin besides the default ones, with the extension points that it implements. Repeatable.",
)
"""For the commands that read a configuration whose plugins need not be installed here."""

verbose_option = click.option("-v", "--verbose", is_flag=True, help="Log every attempt on standard error.")
