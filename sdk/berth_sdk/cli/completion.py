"""`berth-sdk completion SHELL`: completion scripts for shells, and the candidates that they ask for.

A script runs `berth-sdk __complete` with all words up to the cursor, the command's own name first, and reads
one candidate per line. Without candidates, the shell completes files.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from berth_sdk.cli.loading import GROUP

ASK: Final = "__complete"
_SCRIPTS: Final = {
    "bash": """\
_berth_sdk_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(berth-sdk __complete "${COMP_WORDS[@]:0:COMP_CWORD+1}"))
}
complete -o default -F _berth_sdk_completion berth-sdk
""",
    "zsh": """\
#compdef berth-sdk
_berth_sdk_completion() {
    local -a found
    found=("${(@f)$(berth-sdk __complete "${(@)words[1,CURRENT]}")}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _berth_sdk_completion berth-sdk
""",
    "fish": """\
complete -c berth-sdk -a '(berth-sdk __complete (commandline -opc) (commandline -ct))'
""",
}
SHELLS: Final = tuple(_SCRIPTS)


def completion(options: Namespace) -> int:
    """Print the script. Returns 0."""
    print(_SCRIPTS[options.shell], end="")
    return 0


def complete(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Print the candidates for the last of `words`, whose first is the name of the command. Returns 0."""
    for candidate in candidates(parser, words[1:] or [""]):
        print(candidate)
    return 0


def candidates(parser: ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the candidates for the last word. Empty for a file, or any other value that is not known
    here.
    """
    *before, begun = words
    while (found := _command_in(parser, before)) is not None:
        parser, before = found
    awaited = _awaited(parser, before[-1]) if before else None
    if awaited is not None:
        known: Iterable[str] = awaited.choices or ()
    elif begun.startswith("-"):
        known = (option for action in parser._actions for option in action.option_strings)
    else:
        known = (word for action in parser._actions if not action.option_strings for word in _words(action))
    return [word for word in known if word.startswith(begun)]


def _command_in(parser: ArgumentParser, words: Sequence[str]) -> tuple[ArgumentParser, list[str]] | None:
    """Return the command that is named in `words`, and the words after it. None: no command is named."""
    commands = _commands(parser)
    for number, word in enumerate(words):
        if word in commands:
            return commands[word], list(words[number + 1 :])
    return None


def _commands(parser: ArgumentParser) -> Mapping[str, ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def _awaited(parser: ArgumentParser, word: str) -> argparse.Action | None:
    """Return the option that `word` names, if the option takes a value."""
    action = parser._option_string_actions.get(word)
    return action if action is not None and action.nargs != 0 else None


def _words(action: argparse.Action) -> Iterable[str]:
    if action.choices is not None:
        return action.choices
    by_kind = _KINDS.get(str(action.metavar))
    return by_kind() if by_kind is not None else ()


def _installed() -> list[str]:
    from importlib.metadata import entry_points  # see `loading`

    return sorted({entry.name for entry in entry_points(group=GROUP)})


_KINDS: Final[Mapping[str, Callable[[], list[str]]]] = {"NAME": _installed}
"""The candidates for a positional argument, by its name in the usage."""
