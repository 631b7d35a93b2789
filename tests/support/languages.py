"""The languages of the example plugins: what each needs, how it is built, what it makes.

Every language has three plugins, from the protos alone: Maintenance (`smallest`), FreeCpu (`bitmaps`) and
Slots (`binding`). `tests/examples/conformance.py` and the tests of tests/examples read this table.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from berth_sdk.cli import new_compiled
from support.examples import EXAMPLES


class LanguageError(RuntimeError):
    """A language's examples cannot be built. The text gives the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language.

    `folder`: under examples/; the working folder of `build` and `test`. `tools`: the programs that must be on
    PATH, each with the remedy. `build`, `test`: commands; empty: there is nothing to do. `programs`: what to
    run for each program, a path inside `folder` first unless it names a program of PATH; `{folder}` and
    `{python}` are filled in. `sources`: the files of each program whose lines count, those that it shares
    with the others included.
    """

    folder: str
    tools: Mapping[str, str] = field(default_factory=dict)
    build: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    programs: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, tuple[str, ...]]


def _sdk(module: str, plugin: str) -> tuple[str, ...]:
    serve = ("{python}", "-m", "berth_sdk", "serve", f"{module}:{plugin}")
    return ("env", "PYTHONPATH={folder}", *serve)


def _compiled(suffix: str, shared: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {kind: (suffix.format(kind), *shared) for kind in ("smallest", "bitmaps", "binding")}


def _java(program: str) -> tuple[str, ...]:
    # A short start counts for more than fast code later.
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return ("java", *options, "-cp", "{folder}/target/classes:{folder}/target/lib/*", f"example.{program}")


def _java_sources(*names: str) -> tuple[str, ...]:
    return tuple(f"src/main/java/example/{name}.java" for name in names)


def _tools(name: str) -> dict[str, str]:
    return {tool.program: tool.cure for tool in new_compiled.LANGUAGES[name].tools}


LANGUAGES: Final[Mapping[str, Language]] = {
    "python": Language(
        folder="python",
        programs={
            "smallest": _sdk("smallest", "Maintenance"),
            "bitmaps": _sdk("bitmaps", "FreeCpu"),
            "binding": _sdk("binding", "Slots"),
            "no_sdk": ("{python}", "../no_sdk/maintenance.py"),
        },
        sources=_compiled("{}.py", ()),
    ),
    "go": Language(
        folder="go",
        tools=_tools("go"),
        build=("./build.sh",),
        test=("go", "test", "./..."),
        programs={"smallest": ("bin/smallest",), "bitmaps": ("bin/bitmaps",), "binding": ("bin/binding",)},
        sources={
            "smallest": ("smallest/main.go",),
            "bitmaps": ("bitmaps/main.go", "bitmaps/table.go"),
            "binding": ("binding/main.go",),
        },
    ),
    "typescript": Language(
        folder="typescript",
        tools=_tools("typescript"),
        build=("./build.sh",),
        test=("npm", "test"),
        programs={kind: ("node", f"dist/{kind}.js") for kind in ("smallest", "bitmaps", "binding")},
        sources={
            "smallest": ("src/smallest.ts",),
            "bitmaps": ("src/bitmaps.ts", "src/table.ts"),
            "binding": ("src/binding.ts",),
        },
    ),
    "rust": Language(
        folder="rust",
        tools=_tools("rust"),
        build=("./build.sh",),
        test=("./build.sh", "test"),
        programs={"smallest": ("bin/smallest",), "bitmaps": ("bin/bitmaps",), "binding": ("bin/binding",)},
        sources={
            "smallest": ("smallest/main.rs",),
            "bitmaps": ("bitmaps/main.rs", "bitmaps/table.rs"),
            "binding": ("binding/main.rs", "binding/cycles.rs"),
        },
    ),
    "java": Language(
        folder="java",
        tools=_tools("java"),
        build=("./build.sh",),
        test=("./build.sh", "test"),
        programs={
            "smallest": _java("smallest.Maintenance"),
            "bitmaps": _java("bitmaps.FreeCpu"),
            "binding": _java("binding.Slots"),
        },
        sources={
            "smallest": _java_sources("smallest/Maintenance"),
            "bitmaps": _java_sources("bitmaps/FreeCpu", "bitmaps/Table"),
            "binding": _java_sources("binding/Slots", "binding/Cycles"),
        },
    ),
}
"""The languages by name. The first one is what the others are compared with."""

PLUGINS: Final[Mapping[str, str]] = {
    "smallest": "Maintenance",
    "no_sdk": "Maintenance",
    "bitmaps": "FreeCpu",
    "binding": "Slots",
}
"""The plugin that each program serves."""


def chosen(words: str) -> dict[str, Language]:
    """Return the languages that `words` names, separated by spaces; empty: all. Raises LanguageError."""
    names = words.split() or list(LANGUAGES)
    for name in names:
        if name not in LANGUAGES:
            raise LanguageError(f"there is no language {name!r}: choose from {' '.join(LANGUAGES)}")
    return {name: LANGUAGES[name] for name in names}


def built(name: str) -> None:
    """Build the plugins of a language. Raises LanguageError, with what the tools printed."""
    language = LANGUAGES[name]
    for tool, remedy in language.tools.items():
        if shutil.which(tool) is None:
            raise LanguageError(f"{tool} is needed to build the {name} plugins, and is not on PATH: {remedy}")
    if language.build:
        _run(name, language.build, f"the {name} plugins cannot be built")


def tested(name: str) -> None:
    """Run the language's own test. Raises LanguageError, with what it printed."""
    language = LANGUAGES[name]
    if language.test:
        _run(name, language.test, f"the test of the {name} plugins failed")


def command(name: str, program: str) -> list[str]:
    """Return the command that starts a program, with absolute paths."""
    language = LANGUAGES[name]
    folder = EXAMPLES / language.folder
    words = [word.format(folder=folder, python=sys.executable) for word in language.programs[program]]
    return [str(folder / word) if (folder / word).is_file() else word for word in words]


def run_alone(name: str, folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a build or a test of a language in a folder, while no other process does so for that language.

    The builds of a language share caches. Standard output of the result has both streams.
    """
    lock = os.open(EXAMPLES / LANGUAGES[name].folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, "PROTOC": f"{sys.executable} -m grpc_tools.protoc"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        os.close(lock)


def _run(name: str, words: tuple[str, ...], failed: str) -> None:
    folder = LANGUAGES[name].folder
    done = run_alone(name, EXAMPLES / folder, words)
    if done.returncode:
        raise LanguageError(
            f"{failed}: {' '.join(words)} in {Path('examples') / folder}\n{done.stdout.strip()}"
        )
