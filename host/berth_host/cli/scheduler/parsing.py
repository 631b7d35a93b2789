"""A command line in Go's spelling -> `ParsedFlags`. `command` calls it.

Accepts `--name value`, `--name=value`, bare `--name` for booleans, `-v2`, `-v 2`, `-v=2`, and `_` for `-` in
names. `--` ends the flags. Only the first error is reported, as by pflag. Source: pflag,
`k8s.io/component-base/cli/flag` (names).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from berth_host.cli.scheduler.flag_kinds import Value
from berth_host.cli.scheduler.flags import FLAGS, Flag, Standing
from berth_host.config.errors import nearest

_HELP = ("-h", "--help")
_SHORTHANDS = {flag.shorthand: flag for flag in FLAGS.values() if flag.shorthand}


class FlagError(Exception):
    """The error of an invalid command line. `str()`: one line with the reason."""


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """The flags of a command line; a flag that is not given has its default.

    `wants_help`: True after --help, which ignores all other flags.
    """

    given: Mapping[str, Value] = field(default_factory=dict)
    wants_help: bool = False

    def is_given(self, name: str) -> bool:
        """Return True if the command line has the flag."""
        return name in self.given

    def value(self, name: str) -> Value:
        """Return the given value, or the default. Raises KeyError for an unknown flag."""
        return self.given.get(name, FLAGS[name].default)

    def text(self, name: str) -> str:
        """Return the value of a text flag."""
        value = self.value(name)
        assert isinstance(value, str)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the value of a flag with a list of texts."""
        value = self.value(name)
        assert isinstance(value, tuple)
        return value

    def is_on(self, name: str) -> bool:
        """Return the value of a boolean flag."""
        value = self.value(name)
        assert isinstance(value, bool)
        return value

    def integer(self, name: str) -> int:
        """Return the value of an integer flag."""
        value = self.value(name)
        assert isinstance(value, int)
        return value

    def number(self, name: str) -> float:
        """Return the value of a number flag; for a duration, seconds."""
        value = self.value(name)
        assert isinstance(value, float)
        return value

    def warnings(self) -> Iterator[str]:
        """Yield a warning for each flag that is deprecated, has no effect, or is ignored beside --config."""
        for name in self.given:
            flag = FLAGS[name]
            if flag.without_config and self.text("config"):
                yield f"--{name} is ignored: --config is given; say it in that file"
            elif flag.standing is Standing.DEPRECATED:
                yield f"--{name} is deprecated"
            elif flag.standing is Standing.WITHOUT_EFFECT:
                yield f"--{name} has no effect in berth"


def parse(arguments: Sequence[str]) -> ParsedFlags:
    """Read a command line without its command. Raises FlagError."""
    given: dict[str, Value] = {}
    rest = iter(arguments)
    others: list[str] = []
    for argument in rest:
        if argument in _HELP:
            return ParsedFlags(wants_help=True)
        if argument == "--":
            others += rest
        elif argument.startswith("--"):
            _take_long(argument, rest, given)
        elif argument.startswith("-") and argument != "-":
            _take_short(argument, rest, given)
        elif argument:
            others.append(argument)
    if others:
        raise FlagError(f"berth scheduler takes no arguments, only flags: {others[0]!r}")
    return ParsedFlags(given)


def _take_long(argument: str, rest: Iterator[str], given: dict[str, Value]) -> None:
    spelled, equals, text = argument[2:].partition("=")
    flag = FLAGS.get(spelled.replace("_", "-"))
    if flag is None:
        cure = nearest(spelled, FLAGS)
        raise FlagError(f"unknown flag: --{spelled}" + (f" (did you mean --{cure}?)" if cure else ""))
    if equals:
        _give(flag, text, given)
    elif flag.kind.without_value is not None:
        given[flag.name] = flag.kind.without_value
    else:
        _give(flag, _next(rest, f"--{flag.name}"), given)


def _take_short(argument: str, rest: Iterator[str], given: dict[str, Value]) -> None:
    flag = _SHORTHANDS.get(argument[1])
    if flag is None:
        raise FlagError(f"unknown shorthand flag: {argument[1]!r} in {argument}")
    text = argument[2:].removeprefix("=")
    _give(flag, text or _next(rest, f"-{flag.shorthand}"), given)


def _next(rest: Iterator[str], shown: str) -> str:
    text = next(rest, None)
    if text is None:
        raise FlagError(f"flag needs an argument: {shown}")
    return text


def _give(flag: Flag, text: str, given: dict[str, Value]) -> None:
    try:
        value = flag.kind.read(text)
        before = given.get(flag.name)
        if flag.kind.adds and isinstance(before, tuple) and isinstance(value, tuple):
            value = (*before, *value)
            if flag.kind.check is not None:
                flag.kind.check(value)
    except ValueError as err:
        raise FlagError(f'invalid argument "{text}" for "--{flag.name}" flag: {err}') from None
    given[flag.name] = value
