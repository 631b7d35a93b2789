"""A plugin's name and extension points -> the files of a plugin in Go, TypeScript, Rust or Java.

Called by `cli.new`. The folder `scaffold` has SamplePlugin in each language, with every extension point of
POINTS, and its test. A made plugin is a copy with its own name, without the regions of the points that it
lacks. A region begins with a line `//[filter,score]`, for any of these points, and ends with `//[/]`. In a
line that ends in `//[filter]` it is that line. `!filter` in the list: not with that point.

The server's frame, the build files and the contract are made of examples/ and proto/ (`scaffold_sources`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from berth_sdk.cli import scaffold_sources
from berth_sdk.cli.new_python import CLUSTER, POINTS, Naming, configuration
from berth_sdk.extension_points import ExtensionPoint

SAMPLE: Final = Naming(name="sample-plugin", module="sampleplugin", cls="SamplePlugin")
"""The names in the scaffold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that building a plugin needs.

    `version`: the arguments that make it print its version. `least`: the oldest version that works.
    """

    program: str
    version: tuple[str, ...]
    least: tuple[int, ...]
    cure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """One language.

    `tools`: must be on PATH. `protoc`: whether the build script calls one; else the build tool brings it.
    `command`: what a host starts, from the plugin's folder. `then`: the commands after `new`. `words`: names
    that no plugin can have.
    """

    title: str
    tools: tuple[Tool, ...]
    protoc: bool = True
    command: tuple[str, ...]
    then: tuple[str, ...]
    words: frozenset[str]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JDK: Final = "install a JDK from 17 (Debian: apt-get install default-jdk-headless)"

LANGUAGES: Final[Mapping[str, Language]] = {
    "go": Language(
        title="Go",
        tools=(
            Tool(
                program="go",
                version=("version",),
                least=(1, 21),  # fetches the version of go.mod
                cure="install Go 1.21 or newer (https://go.dev/doc/install)",
            ),
        ),
        command=("bin/sample-plugin",),
        then=("./build.sh", "go test ./..."),
        # Folders of the module, and names that Go gives a meaning.
        words=_words("bin internal plugin proto serve testdata vendor"),
    ),
    "typescript": Language(
        title="TypeScript",
        tools=(
            Tool(
                program="node",
                version=("--version",),
                least=(20,),
                cure="install Node 20 or newer (https://nodejs.org)",
            ),
            Tool(
                program="npm",
                version=("--version",),
                least=(9,),
                cure="install npm, which comes with Node (https://nodejs.org)",
            ),
        ),
        command=("node", "dist/main.js"),
        then=("./build.sh", "npm test"),
        words=_words("node-modules favicon-ico"),
    ),
    "rust": Language(
        title="Rust",
        tools=(
            Tool(
                program="cargo",
                version=("--version",),
                least=(1, 88),
                cure="install Rust 1.88 or newer (https://rustup.rs)",
            ),
        ),
        command=("bin/sample-plugin",),
        then=("./build.sh", "./build.sh test"),
        # Words of the language, crates that the plugin uses, and folders of Cargo.
        words=_words(
            "abstract alloc as async await become box break build const continue core crate deps"
            " do dyn else enum examples extern false final fn for gen if impl in incremental let"
            " loop macro match mod move mut override priv proc-macro prost prost-types pub ref"
            " return self serde-json serve static std struct super test tokio tokio-stream tonic"
            " tonic-prost tonic-prost-build trait true try type typeof union unsafe unsized use"
            " virtual where while yield"
        ),
    ),
    "java": Language(
        title="Java",
        tools=(
            Tool(program="java", version=("-version",), least=(17,), cure=_JDK),
            Tool(program="javac", version=("-version",), least=(17,), cure=_JDK),
            Tool(
                program="mvn",
                version=("--version",),
                least=(3, 6),
                cure="install Maven (Debian: apt-get install maven)",
            ),
        ),
        protoc=False,
        command=(
            "java",
            "-XX:+UseSerialGC",
            "-cp",
            "target/classes:target/lib/*",
            "example.sampleplugin.SamplePlugin",
        ),
        then=("./build.sh", "./build.sh test"),
        words=_words(
            "abstract assert boolean break byte case catch char class const continue default do"
            " double else enum extends false final finally float for goto if implements import"
            " instanceof int interface long native new null package private protected public"
            " return serve short static strictfp super switch synchronized this throw throws"
            " transient true try void volatile while"
        ),
    ),
}
"""The languages that are compiled, by the word of `--language`."""

_PROTOC: Final = "python -m grpc_tools.protoc"
"""The protoc of a build script without PROTOC."""
_OLDEST_PROTOC: Final = (3, 21)
_VERSION_S = 20.0
"""The time for a tool to print its version."""
_QUEUE: Final = ("preEnqueue", "queueSort")
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue": _QUEUE,
    "cycle": tuple(point.config_name for point in POINTS if point.config_name not in _QUEUE),
}
"""Short words for the points of one service."""
_BEGIN: Final = re.compile(r"\s*//\[([\w,!]+)\]")
_END: Final = re.compile(r"\s*//\[/\]")
_SUFFIX: Final = re.compile(r"(.*\S)\s*//\[([\w,!]+)\]")


def missing_tool(language: str) -> str:
    """Return what the language's build needs and this machine lacks, with the cure; "": nothing."""
    asked = LANGUAGES[language]
    for tool in asked.tools:
        if shutil.which(tool.program) is None:
            return f"a plugin in {asked.title} needs {tool.program}, which is not on PATH: {tool.cure}"
        found = _version([tool.program, *tool.version])
        if found < tool.least:
            version = ".".join(map(str, found))
            asking = " ".join([tool.program, *tool.version])
            problem = f"cannot be built with {tool.program} {version}"
            if not found:
                problem = f"needs {tool.program}, and `{asking}` prints no version"
            return f"a plugin in {asked.title} {problem}: {tool.cure}"
    if asked.protoc:
        words = os.environ.get("PROTOC") or _PROTOC
        found = _version([*shlex.split(words), "--version"])
        if found < _OLDEST_PROTOC:
            problem = f"is version {'.'.join(map(str, found))}" if found else "does not run"
            least = ".".join(map(str, _OLDEST_PROTOC))
            return (
                f"a plugin in {asked.title} needs protoc {least} or newer, and {words!r} {problem}:"
                " `pip install grpcio-tools` into the Python of PATH, or set PROTOC to another command"
            )
    return ""


def _version(command: Sequence[str]) -> tuple[int, ...]:
    """Return the version that the command prints; empty: it prints none."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_VERSION_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    # Java prints it on standard error, Maven in colours. A command that fails may print another number.
    text = re.sub(r"\x1b\[[\d;]*m", "", f"{done.stdout} {done.stderr}")
    found = re.search(r"\d+(?:\.\d+)*", text) if done.returncode == 0 else None
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def conflict(language: str, naming: Naming) -> str:
    """Return why a plugin of this name cannot be built in the language; "": it can."""
    asked = LANGUAGES[language]
    for word in (naming.name, naming.module, naming.cls):
        if word in asked.words:
            return f"{word!r} means something else in a {asked.title} plugin"
    # A class of the same name as one that the text uses would hide it.
    for path, text in _sources(language):
        if path.endswith((".rs", ".java")) and re.search(rf"\b{naming.cls}\b", text):
            return f"{naming.cls!r} is a name that the plugin's {asked.title} code uses"
    return ""


def files(language: str, naming: Naming, points: Sequence[ExtensionPoint]) -> dict[str, str]:
    """Return the plugin's files: path below its folder -> text. `points`: some of POINTS, in their order."""
    chosen = frozenset(point.config_name for point in points)
    made = {}
    for path, text in _sources(language):
        if not (kept := _cut(text, chosen)):
            continue  # a file for points that were not chosen
        listed = kept.replace("$POINTS", ", ".join(one.config_name for one in points))
        made[_named(path, naming)] = _named(listed, naming)
    if "Cargo.lock" in made:
        made["Cargo.lock"] = _sorted_packages(made["Cargo.lock"])
    made |= {name: text for name, text in scaffold_sources.files().items() if name.startswith("proto/")}
    made["scheduler.yaml"] = configuration(naming, points, command(language, naming))
    made["cluster.yaml"] = CLUSTER
    return made


def command(language: str, naming: Naming) -> list[str]:
    """Return the words that start the plugin, from its folder."""
    return [_named(word, naming) for word in LANGUAGES[language].command]


def _sources(language: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file of a language's scaffold."""
    for path, text in scaffold_sources.files().items():
        folder, _, name = path.partition("/")
        if folder == language:
            yield name, text


def _named(text: str, naming: Naming) -> str:
    for old, new in ((SAMPLE.name, naming.name), (SAMPLE.module, naming.module), (SAMPLE.cls, naming.cls)):
        text = text.replace(old, new)
    return text


def _sorted_packages(lock: str) -> str:
    """Return a Cargo.lock with its packages in the order that Cargo's option --locked insists on."""
    head, *packages = lock.rstrip("\n").split("\n\n[[package]]\n")
    return "\n\n[[package]]\n".join([head, *sorted(packages, key=lambda one: one.partition("\n")[0])]) + "\n"


def _cut(text: str, chosen: frozenset[str]) -> str:
    """Return the text without the regions of points that were not chosen, and without the marks."""
    lines: list[str] = []
    is_kept = [True]
    for line in text.split("\n"):
        if begin := _BEGIN.fullmatch(line):
            is_kept.append(_holds(begin[1], chosen))
        elif _END.fullmatch(line):
            is_kept.pop()
        elif all(is_kept):
            suffix = _SUFFIX.fullmatch(line)
            if suffix is None:
                lines.append(line)
            elif _holds(suffix[2], chosen):
                lines.append(suffix[1])
    # What a region leaves may be two empty lines, or one at the edge of a block.
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    tidy = re.sub(r"([({\[]\n)\n|\n(\n[ \t]*[)}\]])", r"\1\2", joined).strip("\n")
    return f"{tidy}\n" if tidy else ""


def _holds(condition: str, chosen: frozenset[str]) -> bool:
    """Return True if a region is kept: for any point of its list, if it has some, and for none with a `!`."""
    wanted: set[str] = set()
    unwanted: set[str] = set()
    for word in condition.split(","):
        bare = word.removeprefix("!")
        (wanted if bare == word else unwanted).update(_GROUPS.get(bare, (bare,)))
    return (not wanted or not wanted.isdisjoint(chosen)) and unwanted.isdisjoint(chosen)
