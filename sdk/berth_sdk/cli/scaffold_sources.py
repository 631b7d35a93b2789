"""The files of the scaffolds of `berth-sdk new`: its own, and those made of the repository's other folders.

The contract is that of proto/. The server's frames and the build files are those of examples/, with the
changes of SOURCES: an example has several plugins, a scaffold has one. The repository has no copy of them. A
package gets the copies when it is built (`sdk/hatch_build.py`, which loads this file alone); an installation
in place makes them of the repository when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

SCAFFOLD: Final = Path(__file__).parent / "scaffold"
Changes = tuple[tuple[str, str], ...]
"""Replacements, each made exactly once: a regular expression, and the text in its place."""

_PROTO: Final = (r"\.\./\.\./proto", "proto")
SOURCES: Final[Mapping[str, Mapping[str, Changes]]] = {
    "go": {
        "go.mod": ((r"^module berth\.io$", "module example.com/sample-plugin"),),
        "go.sum": (),
        "serve/serve.go": ((r'"berth\.io/', '"example.com/sample-plugin/'),),
        "build.sh": (
            _PROTO,
            (r"builds the plugins into", "builds the plugin into"),
            (r"\n# `build.sh FOLDER NAME` builds the plugin NAME only; several names are one argument\.", ""),
            (
                r"for plugin in \$\{2:-[a-z ]+\}; do\n    (go build .*)\$plugin(.*)\$plugin(.*)\ndone",
                r"\1sample-plugin\2sample-plugin\3",
            ),
        ),
    },
    "typescript": {
        ".npmrc": (),
        "package.json": (
            (r"berth-example-plugins", "sample-plugin"),
            (r"dist/vectors\.test\.js", "dist/plugin.test.js"),
        ),
        "package-lock.json": (
            (r'^  "name": "berth-example-plugins"', '  "name": "sample-plugin"'),
            (r'^      "name": "berth-example-plugins"', '      "name": "sample-plugin"'),
        ),
        "tsconfig.json": (),
        "src/serve.ts": (),
        "build.sh": (_PROTO, (r"compiles the plugins into", "compiles the plugin into")),
    },
    "rust": {
        "rustfmt.toml": (),
        "build.rs": (_PROTO,),
        "serve/lib.rs": ((r"#\[cfg\(test\)\]\nmod tests;\n\n", ""),),
        "Cargo.toml": (
            (r"\A# Three plugins by .*\n", ""),
            (r"berth-example-plugins", "sample-plugin"),
            (
                r'(?:\[\[bin\]\]\nname = "\w+"\npath = "\w+/main\.rs"\n\n)+',
                '[[bin]]\nname = "sample-plugin"\npath = "src/main.rs"\n\n',
            ),
            (r'\[dev-dependencies\]\nbase64 = "0\.22"\n\n', ""),
        ),
        "Cargo.lock": (
            (
                r'^name = "berth-example-plugins"\nversion = "0\.1\.0"\ndependencies = \[\n "base64",$',
                'name = "sample-plugin"\nversion = "0.1.0"\ndependencies = [',
            ),
        ),
        "build.sh": (
            (r"Builds the plugins into", "Builds the plugin into"),
            (
                r"for plugin in [a-z ]+; do\n    (# A running.*)\n    (cp .*)\$plugin(.*)\$plugin(.*)\ndone",
                r"\1\n\2sample-plugin\3sample-plugin\4",
            ),
        ),
    },
    "java": {
        "src/main/java/example/serve/Plugin.java": (),
        "build.sh": ((r"Builds the plugins into", "Builds the plugin into"),),
        "pom.xml": (
            (r"<!-- Three plugins by the contract alone, and their tests\. ", "<!-- "),
            (r"berth-example-plugins", "sample-plugin"),
            (r"\.\./\.\./proto", "proto"),
            (r"\n *<configuration><systemPropertyVariables><proto>.*", ""),
        ),
    },
}
"""Each copied file of each language, in examples/LANGUAGE and in the scaffold, with its changes."""


_CONTRACT: Final = "berth/plugin"


class ScaffoldError(Exception):
    """The scaffolds cannot be made; the text says why, and what to do."""


def copies(repository: Path) -> dict[str, str]:
    """Return the text of each file that is made of the repository, by its path in the scaffold.

    Raises ScaffoldError for a source that lacks what its changes replace, and for a folder that is not a
    whole repository.
    """
    if not is_repository(repository):
        raise ScaffoldError(
            f"{repository} has no proto/{_CONTRACT} and no examples: use a whole checkout of the repository"
        )
    proto = repository / "proto"
    made = {
        f"proto/{path.relative_to(proto).as_posix()}": path.read_text("utf-8")
        for path in sorted((proto / _CONTRACT).rglob("*.proto"))
    }
    for language, files in SOURCES.items():
        for name, changes in files.items():
            text = (repository / "examples" / language / name).read_text("utf-8")
            for pattern, new in changes:
                text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
                if count != 1:
                    raise ScaffoldError(
                        f"examples/{language}/{name}: {pattern!r} is there {count} times, not once: change"
                        " SOURCES in scaffold_sources.py"
                    )
            made[f"{language}/{name}"] = text
    return made


def is_repository(folder: Path) -> bool:
    """Return True if the folder has what `copies` reads."""
    return (folder / "proto" / _CONTRACT).is_dir() and all(
        (folder / "examples" / language).is_dir() for language in SOURCES
    )


@cache
def files() -> Mapping[str, str]:
    """Return the text of each file of the scaffolds, by its path: `go/build.sh`. Raises ScaffoldError."""
    found = {
        path.relative_to(SCAFFOLD).as_posix(): path.read_text("utf-8")
        for path in SCAFFOLD.rglob("*")
        if path.is_file()
    }
    if "proto" not in {name.partition("/")[0] for name in found}:
        found |= copies(SCAFFOLD.parents[3])
    return dict(sorted(found.items()))
