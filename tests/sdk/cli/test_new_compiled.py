"""`berth-sdk new --language` writes the files of a plugin in Go, TypeScript, Rust or Java.

`tests/examples/test_made_plugins.py` builds and runs such plugins.
"""

from __future__ import annotations

import re
import runpy
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from berth_host.cli.main import berth
from berth_sdk.__main__ import LANGUAGES as CHOICES
from berth_sdk.__main__ import main
from berth_sdk.cli import new_compiled, scaffold_sources
from berth_sdk.cli.new_compiled import LANGUAGES
from berth_sdk.cli.new_python import POINTS, Naming
from berth_sdk.cli.scaffold_sources import SCAFFOLD, SOURCES, ScaffoldError, copies
from berth_sdk.extension_points import ExtensionPoint
from click.testing import CliRunner
from support.places import ROOT

LARGE = shutil.ignore_patterns("node_modules", "target", "bin", "dist", "__pycache__")
NAMES = [point.config_name for point in POINTS]
LISTS = [
    *(name for name in NAMES if name not in ("preScore", "normalizeScore")),
    "preScore,score",
    "score,normalizeScore",
    "filter,score",
    "preEnqueue,permit",
    ",".join(NAMES),
]
NAMING = Naming(name="rack-aware", module="rackaware", cls="RackAware")
COMMON = {"README.md", "Dockerfile", ".dockerignore", ".gitignore", ".github/workflows/test.yaml"} | {
    "build.sh",
    "cluster.yaml",
    "scheduler.yaml",
}
OWN = {
    "go": {"go.mod", "go.sum", "serve/serve.go", "rack-aware/main.go", "rack-aware/main_test.go"},
    "typescript": {"package.json", "package-lock.json", "tsconfig.json", ".npmrc"}
    | {f"src/{name}.ts" for name in ("main", "plugin", "plugin.test", "serve")},
    "rust": {
        "Cargo.toml",
        "Cargo.lock",
        "build.rs",
        "rustfmt.toml",
        "serve/lib.rs",
        "src/main.rs",
        "src/tests.rs",
    },
    "java": {
        "pom.xml",
        "src/main/java/example/serve/Plugin.java",
        "src/main/java/example/rackaware/RackAware.java",
        "src/test/java/example/rackaware/RackAwareTest.java",
    },
}
"""The files of each language, those of all languages and the contract left out."""
PLUGIN = {
    "go": ("rack-aware/main.go", "rack-aware/main_test.go"),
    "typescript": ("src/plugin.ts", "src/plugin.test.ts"),
    "rust": ("src/main.rs", "src/tests.rs"),
    "java": (
        "src/main/java/example/rackaware/RackAware.java",
        "src/test/java/example/rackaware/RackAwareTest.java",
    ),
}
"""The plugin, and its test."""
IMPORTED = {
    "go": re.compile(r'^\t(?:(\w+) )?"(?:[\w.-]+/)*([\w.-]+)"$', re.MULTILINE),
    "typescript": re.compile(r"^(?:import .*\{| {2})(?: ?type)? ?(\w+)(?:,| \} from .*)$", re.MULTILINE),
    "rust": re.compile(r"^use (?!super)(?:\w+::)+(\w+);", re.MULTILINE),
    "java": re.compile(r"^import (?:static )?(?:\w+\.)+(\w+);", re.MULTILINE),
}
"""The names that a line imports. Go refuses one that is not used."""


def points_of(names: str) -> Sequence[ExtensionPoint]:
    return [point for point in POINTS if point.config_name in names.split(",")]


def made(language: str, names: str = "filter,score") -> dict[str, str]:
    return new_compiled.files(language, NAMING, points_of(names))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put all tools on PATH, as programs that print a version, and no other program. Returns their folder."""
    folder = tmp_path / "tools"
    folder.mkdir()
    versions = {"go": "go version go1.26.1 linux/amd64", "node": "v22.1.0", "npm": "10.2.3"}
    versions |= {
        "cargo": "cargo 1.95.0 (f2d3ce0bd 2026-03-21)",
        "javac": "javac 17.0.15",
        "python": "libprotoc 31.1",
    }
    versions |= {"java": 'openjdk version "17.0.15" 2025-04-15', "mvn": "\x1b[1mApache Maven 3.8.7\x1b[m"}
    for name, text in versions.items():
        tool(folder, name, text)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("PROTOC", raising=False)
    return folder


def tool(folder: Path, name: str, text: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o755)


def test_every_language_of_the_command_has_a_scaffold() -> None:
    assert list(CHOICES) == ["python", *LANGUAGES]
    assert {path.name for path in SCAFFOLD.iterdir()} == set(LANGUAGES)
    assert {name.partition("/")[0] for name in scaffold_sources.files()} == {"proto", *LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_frame_and_build_files_are_those_of_the_examples(language: str) -> None:
    assert set(SOURCES[language]) < OWN[language] | COMMON
    own = {path.relative_to(SCAFFOLD).as_posix() for path in SCAFFOLD.rglob("*") if path.is_file()}
    assert not own & copies(ROOT).keys(), "a copy lies in the repository: remove the copy"
    found = scaffold_sources.files()
    assert {name: found[name] for name in copies(ROOT)} == copies(ROOT)


def test_contract_of_a_made_plugin_is_that_of_the_repository() -> None:
    for name, text in made("go").items():
        if name.startswith("proto/"):
            assert text == (ROOT / name).read_text("utf-8")
    assert "proto/berth/plugin/v1/scheduling.proto" in made("go")


def test_example_that_lost_what_a_scaffold_changes_is_named(tmp_path: Path) -> None:
    for folder in ("proto/berth/plugin", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=LARGE)
    assert copies(tmp_path) == copies(ROOT)
    (tmp_path / "examples/go/go.mod").write_text("module other\n")
    with pytest.raises(ScaffoldError, match=r"examples/go/go\.mod: .* is there 0 times, not once"):
        copies(tmp_path)
    shutil.rmtree(tmp_path / "proto")
    with pytest.raises(ScaffoldError, match="use a whole checkout"):
        copies(tmp_path)


def build_hook(monkeypatch: pytest.MonkeyPatch, root: Path) -> Any:
    """Return the build hook of the SDK in `root`. The base class is the part of hatchling that it uses."""

    class Base:
        def __init__(self, root: str) -> None:
            self.root = root

    for name in ("", ".builders", ".builders.hooks", ".builders.hooks.plugin"):
        monkeypatch.setitem(sys.modules, f"hatchling{name}", ModuleType(name))
    interface = ModuleType("interface")
    vars(interface)["BuildHookInterface"] = Base
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    return runpy.run_path(str(ROOT / "sdk/hatch_build.py"))["ScaffoldHook"](str(root))


def test_package_gets_the_copies_when_it_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hook = build_hook(monkeypatch, ROOT / "sdk")
    data: dict[str, dict[str, str]] = {"force_include": {}}
    hook.initialize("standard", data)
    packed = {into: Path(path).read_text("utf-8") for path, into in data["force_include"].items()}
    assert packed == {f"berth_sdk/cli/scaffold/{name}": text for name, text in copies(ROOT).items()}
    hook.finalize("standard", data, "")
    assert not any(Path(path).exists() for path in data["force_include"])

    # An installation in place has no copies, and a source archive has them already.
    empty: dict[str, dict[str, str]] = {"force_include": {}}
    hook.initialize("editable", empty)
    package = tmp_path / "sdk/berth_sdk/cli"
    (package / "scaffold/proto").mkdir(parents=True)
    build_hook(monkeypatch, tmp_path / "sdk").initialize("standard", empty)
    assert empty == {"force_include": {}}

    # A lone folder of the SDK cannot make them.
    (package / "scaffold/proto").rmdir()
    shutil.copy(ROOT / "sdk/berth_sdk/cli/scaffold_sources.py", package)
    with pytest.raises(Exception, match="use a whole checkout of the repository"):
        build_hook(monkeypatch, tmp_path / "sdk").initialize("standard", empty)


@pytest.mark.parametrize("language", LANGUAGES)
def test_image_is_made_of_the_same_images_and_tools_as_the_example(language: str) -> None:
    pinned = re.compile(r"^FROM (\S+)|(grpcio-tools==\S+)", re.MULTILINE)
    example = (ROOT / "examples" / language / "Dockerfile").read_text()
    text = made(language)["Dockerfile"]
    assert pinned.findall(text) == pinned.findall(example) != []
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)
    assert "build.sh" in text


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("names", LISTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_plugin_has_all_files_its_own_name_and_the_points_asked_for(language: str, names: str) -> None:
    files = made(language, names)
    contract = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "proto" / "berth" / "plugin").rglob("*.proto")
    }
    places = {"src/places.rs"} if language == "rust" and "reserve" in names.split(",") else set()
    assert set(files) == OWN[language] | COMMON | contract | places
    for path in contract:
        assert files[path] == (ROOT / path).read_text("utf-8")
    for path, text in files.items():
        assert re.search(r"sample.?plugin|berth-example|//\[|\$POINTS|TODO", text, re.IGNORECASE) is None, (
            path
        )
        assert text.endswith("\n"), path
        assert path == "pom.xml" or path in contract or "\n\n\n" not in text, path
    code = "".join(files[path] for path in PLUGIN[language])
    for point in POINTS:
        is_declared = re.search(
            rf"ExtensionPoint(\.EXTENSION_POINT|_EXTENSION_POINT|::)_?{spelt(language, point)}\b", code
        )
        assert bool(is_declared) == (point in points_of(names)), point
    assert ", ".join(point.config_name for point in points_of(names)) in files["README.md"]


def spelt(language: str, point: ExtensionPoint) -> str:
    """Return the name of a point as the language's generated code has it."""
    words = re.findall(r"[A-Z]?[a-z]+", point.config_name)
    return "".join(map(str.capitalize, words)) if language == "rust" else "_".join(words).upper()


@pytest.mark.parametrize("names", LISTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_plugin_uses_everything_that_it_imports(language: str, names: str) -> None:
    files = made(language, names)
    found = 0
    for path in PLUGIN[language]:
        text = files[path]
        imported = [
            one if isinstance(one, str) else one[0] or one[1] for one in IMPORTED[language].findall(text)
        ]
        unused = [name for name in imported if len(re.findall(rf"\b{name}\b", text)) == 1]
        assert unused == [], path
        found += len(imported)
    assert found > 0


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("names", LISTS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_configuration_names_the_program_and_is_one_that_a_host_takes(
    language: str, names: str, tmp_path: Path
) -> None:
    files = made(language, names)
    _, own = yaml.safe_load_all(files["scheduler.yaml"])
    assert own["plugins"] == [{"name": "RackAware", "command": new_compiled.command(language, NAMING)}]
    (tmp_path / "scheduler.yaml").write_text(files["scheduler.yaml"])
    checked = CliRunner().invoke(berth, ["check-config", str(tmp_path / "scheduler.yaml")])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("language", LANGUAGES)
def test_command_writes_the_folder_with_a_script_that_can_run_and_says_what_comes_next(
    language: str,
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "rack-aware", "--language", language]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "rack-aware: RackAware at filter, score. Next:"
    assert said[1] == "  cd rack-aware && ./build.sh"
    assert said[-1] == "  berth simulate -f cluster.yaml --config scheduler.yaml"
    written = {
        path.relative_to(tmp_path / "rack-aware").as_posix(): path.read_text("utf-8")
        for path in (tmp_path / "rack-aware").rglob("*")
        if path.is_file()
    }
    assert written == made(language)
    assert stat.S_IMODE((tmp_path / "rack-aware" / "build.sh").stat().st_mode) == 0o755
    assert {path.name for path in tmp_path.iterdir()} == {"rack-aware", "tools"}


def refused(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run `new`, which must refuse and write nothing. Returns the line that it printed."""
    before = sorted(folder.rglob("*"))
    assert main(["new", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert sorted(folder.rglob("*")) == before
    return said


@pytest.mark.parametrize(
    ("language", "name", "cure"),
    [
        ("go", "go", "install Go 1.21 or newer (https://go.dev/doc/install)"),
        ("typescript", "node", "install Node 20 or newer (https://nodejs.org)"),
        ("typescript", "npm", "install npm, which comes with Node (https://nodejs.org)"),
        ("rust", "cargo", "install Rust 1.88 or newer (https://rustup.rs)"),
        ("java", "java", "install a JDK from 17 (Debian: apt-get install default-jdk-headless)"),
        ("java", "javac", "install a JDK from 17 (Debian: apt-get install default-jdk-headless)"),
        ("java", "mvn", "install Maven (Debian: apt-get install maven)"),
    ],
)
def test_missing_or_old_tool_is_named_with_its_cure(
    language: str,
    name: str,
    cure: str,
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["rack-aware", "--language", language]
    tool(tools, name, f"{name} 1.0.3")
    assert f"cannot be built with {name} 1.0.3: {cure}\n" in refused(arguments, tmp_path, capsys)
    tool(tools, name, "99.0 is what another program needs", code=1)
    said = refused(arguments, tmp_path, capsys)
    asked = next(one for one in LANGUAGES[language].tools if one.program == name)
    assert f"needs {name}, and `{' '.join([name, *asked.version])}` prints no version: {cure}\n" in said
    (tools / name).unlink()
    assert f"needs {name}, which is not on PATH: {cure}\n" in refused(arguments, tmp_path, capsys)


@pytest.mark.parametrize("language", [name for name in LANGUAGES if LANGUAGES[name].protoc])
def test_protoc_that_the_build_script_would_call_is_checked(
    language: str,
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["rack-aware", "--language", language]
    (tools / "python").unlink()
    said = refused(arguments, tmp_path, capsys)
    assert (
        "needs protoc 3.21 or newer, and 'python -m grpc_tools.protoc' does not run:"
        " `pip install grpcio-tools`" in said
    )
    tool(tools, "protoc", "libprotoc 3.20.3")
    monkeypatch.setenv("PROTOC", "protoc --fatal_warnings")
    assert "'protoc --fatal_warnings' is version 3.20.3" in refused(arguments, tmp_path, capsys)
    tool(tools, "protoc", "libprotoc 3.21.12")
    assert main(["new", *arguments]) == 0


@pytest.mark.parametrize(
    ("language", "name", "said"),
    [
        ("go", "serve", "'serve' means something else in a Go plugin: add a word, as in serve-plugin"),
        ("rust", "match", "'match' means something else in a Rust plugin"),
        ("rust", "serde-json", "'serde-json' means something else in a Rust plugin"),
        (
            "rust",
            "places",
            "'Places' is a name that the plugin's Rust code uses: add a word, as in places-plugin",
        ),
        ("java", "class", "'class' means something else in a Java plugin"),
        ("java", "string", "'String' is a name that the plugin's Java code uses"),
        ("java", "filter-request", "'FilterRequest' is a name that the plugin's Java code uses"),
        ("typescript", "Rack", "did you mean rack?"),
    ],
)
def test_name_that_the_language_cannot_use_is_refused_with_the_cure(
    language: str,
    name: str,
    said: str,
    tools: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused([name, "--language", language], tmp_path, capsys)


def test_point_and_language_that_are_misspelt_are_corrected(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["rack-aware", "--language", "go", "--points"]
    assert "did you mean reserve?" in refused([*arguments, "resrve"], tmp_path, capsys)
    assert "write --points normalizeScore,score" in refused([*arguments, "normalizeScore"], tmp_path, capsys)
    with pytest.raises(SystemExit):
        main(["new", "rack-aware", "--language", "typscript"])
    assert "did you mean typescript?" in capsys.readouterr().err


def test_folder_with_something_in_it_stays_as_it_is(
    tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").write_text("kept")
    said = refused(["rack-aware", "--language", "go", "--folder", str(tmp_path / "mine")], tmp_path, capsys)
    assert "exists and is not empty: choose another NAME, or --folder" in said
