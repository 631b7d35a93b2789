"""Copy the server's frames and the build files of examples/ into the scaffolds of `berth-sdk new`.

    python tests/sdk/cli/scaffold.py

The copies have the changes of SOURCES: an example has several plugins, a scaffold has one.
`test_new_compiled.py` fails if a copy differs from its source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from berth_sdk.cli.new_compiled import SCAFFOLD

ROOT: Final = next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests").parent
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
            (r"\n# `build.sh FOLDER NAME` builds the plugin NAME only\.", ""),
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


def copies() -> dict[Path, str]:
    """Return what each copy must be."""
    made = {}
    for language, files in SOURCES.items():
        for name, changes in files.items():
            text = (ROOT / "examples" / language / name).read_text("utf-8")
            for pattern, new in changes:
                text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
                if count != 1:
                    raise ValueError(
                        f"examples/{language}/{name}: {pattern!r} is there {count} times, not once"
                    )
            made[SCAFFOLD / language / name] = text
    return made


def main() -> int:
    """Write the copies."""
    made = copies()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"wrote {len(made)} files below {SCAFFOLD}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
