"""`berth-sdk new` writes a package that runs."""

from __future__ import annotations

import errno
import itertools
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points, packages_distributions, requires
from pathlib import Path

import pytest
from berth_host.cli.main import berth
from berth_host.config.default_plugins import DEFAULT_PLUGINS as HOST_PLUGINS
from berth_sdk.__main__ import main
from berth_sdk.cli import new_python
from berth_sdk.cli.new import DEFAULT_PLUGINS
from berth_sdk.extension_points import ExtensionPoint
from click.testing import CliRunner
from support.commands import answer

EVERY = ",".join(point.config_name for point in new_python.POINTS)
LISTS = [
    *(
        pytest.param(point.config_name, id=point.config_name)
        for point in new_python.POINTS
        if point not in (ExtensionPoint.NORMALIZE_SCORE, ExtensionPoint.PRE_SCORE)
    ),
    pytest.param("preScore,score", id="preScore"),
    pytest.param("score,normalizeScore", id="normalizeScore"),
    pytest.param("filter,score", id="the default"),
    pytest.param(EVERY, id="every point"),
]


def made(folder: Path, points: str) -> Path:
    """Run `new` and return the folder that it wrote."""
    target = folder / "rack-aware"
    assert main(["new", "rack-aware", "--points", points, "--folder", str(target)]) == 0
    return target


@pytest.mark.parametrize("points", LISTS)
def test_package_for_each_point_is_one_that_a_host_takes(
    tmp_path: Path, points: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = made(tmp_path, points)
    monkeypatch.syspath_prepend(str(target))
    for name in [name for name in sys.modules if name.partition(".")[0] == "rack_aware"]:
        monkeypatch.delitem(sys.modules, name)
    capsys.readouterr()
    assert main(["check", "rack_aware:RackAware"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("RackAware 0.1.0\n")
    assert all(f"  {point} " in said for point in points.split(","))
    assert "arguments: accepts {}" in said


@pytest.mark.long
@pytest.mark.parametrize(
    "points", [pytest.param("filter,score", id="default"), pytest.param(EVERY, id="all")]
)
def test_written_tests_pass_and_the_text_is_tidy_and_typed(tmp_path: Path, points: str) -> None:
    target = made(tmp_path, points)
    environment = {**os.environ, "PYTHONPATH": str(target), "MYPYPATH": ""}
    for command in (
        ["pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"],
        ["ruff", "check", "--isolated", "--select", "E,F,I,UP,B", "--line-length", "110", "."],
        ["ruff", "format", "--isolated", "--line-length", "110", "--check", "."],
        ["mypy", "--strict", "rack_aware"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=target,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "points", [pytest.param("filter,score", id="default"), pytest.param(EVERY, id="all")]
)
def test_written_configuration_schedules_with_the_plugin_in_a_child(
    tmp_path: Path, points: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = made(tmp_path, points)
    monkeypatch.chdir(target)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    arguments = ["simulate", "-f", "cluster.yaml", "--config", "scheduler.yaml", "-o", "json"]
    result = CliRunner().invoke(berth, arguments, catch_exceptions=False)
    assert [item["pod"] for item in answer(result)["placements"]] == ["default/web"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["Rack_Aware"], "did you mean rack-aware?", id="capitals"),
        pytest.param(["RackAware"], "did you mean rack-aware?", id="name of a class"),
        pytest.param(["test"], "'test' is a name of Python's own", id="Python's own"),
        pytest.param(["1rack"], "'1rack' is no name", id="digit first"),
        pytest.param(["class"], "add a word, as in class-plugin", id="word of Python"),
        pytest.param(["json"], "add a word, as in json-plugin", id="module of Python"),
        pytest.param(["numpy"], "add a word, as in numpy-plugin", id="package that the SDK imports"),
        pytest.param(["berth-host"], "add a word, as in berth-host-plugin", id="package of berth"),
        pytest.param(["status"], "add a word, as in status-rule", id="class of the SDK"),
        pytest.param(["none"], "None is a name of Python's own: add a word, as in none-rule", id="constant"),
        pytest.param(["value-error"], "ValueError is a name of Python's own", id="class of Python"),
        pytest.param([64 * "a"], "as rack-aware; at most 63 characters, not 64", id="too long"),
        pytest.param(["class-var"], "add a word, as in class-var-rule", id="class of typing"),
        pytest.param(["x", "--points", "fliter"], "did you mean filter?", id="misspelt point"),
        pytest.param(["x", "--points", "qqq"], "the points are preEnqueue", id="no point"),
        pytest.param(["x", "--points", ","], "names no extension point", id="empty list"),
        pytest.param(["x", "--points", "normalizeScore"], "write --points normalizeScore,score", id="half"),
        pytest.param(["x", "--points", "placementScore"], "write-a-group-plugin.md", id="point of groups"),
    ],
)
def test_wrong_names_and_points_are_refused_with_the_cure_and_nothing_is_written(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_folder_with_something_in_it_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "rack-aware"
    target.mkdir()
    (target / "mine").write_text("kept")
    assert main(["new", "rack-aware", "--folder", str(target)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["rack-aware"]
    assert [path.name for path in target.iterdir()] == ["mine"]


def test_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name, said in (
        ("file/x", "file/x: File exists: choose another --folder"),
        ("file", "file is a file: choose another NAME, or --folder"),
        ("link", "link: Not a directory: choose another --folder"),
    ):
        assert main(["new", "rack-aware", "--folder", str(tmp_path / name)]) == 2
        assert f"{tmp_path}/{said}\n" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]


@pytest.mark.parametrize("name", [".", "link", "empty"])
def test_empty_folder_is_filled_also_the_working_folder_and_one_behind_a_link(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (tmp_path / "link").symlink_to("empty")
    monkeypatch.chdir(folder if name == "." else tmp_path)
    assert main(["new", "rack-aware", "--folder", name]) == 0
    assert (folder / "pyproject.toml").is_file()
    assert (tmp_path / "link").is_symlink()
    assert not [path for path in folder.iterdir() if path.name.startswith(".rack") or path.name == "."]


def test_nothing_is_left_in_an_empty_folder_that_cannot_be_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rename, count = Path.rename, itertools.count()

    def full(self: Path, target: Path) -> Path:
        if next(count) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    assert main(["new", "rack-aware", "--folder", str(tmp_path)]) == 2
    assert f"{tmp_path}: No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_name_of_a_package_that_the_host_needs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    modules: dict[str, list[str]] = {}
    for module, owners in packages_distributions().items():
        for owner in owners:
            modules.setdefault(canonical(owner), []).append(module)
    needed = [
        canonical(re.split("[ <>=;[]", line)[0])
        for line in requires("berth-host") or ()
        if "extra ==" not in line
    ]
    assert {"pyyaml", "kubernetes", "watchfiles"} <= set(needed)
    found = {
        module for name in needed for module in modules.get(name, ()) if re.fullmatch("[a-z][a-z_]*", module)
    }
    assert {"yaml", "kubernetes", "watchfiles"} <= found
    for module in found:
        assert main(["new", module.replace("_", "-")]) == 2
        assert "of a package that berth imports: add a word" in capsys.readouterr().err


def canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def test_name_of_a_plugin_that_every_host_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    there = {one.name for one in entry_points(group="berth.plugins") if one.value.startswith("berth_plugins")}
    assert there | {plugin.name for plugin in HOST_PLUGINS} == DEFAULT_PLUGINS
    for language in ("python", "go"):
        assert main(["new", "image-locality", "--language", language]) == 2
        said = "ImageLocality is a plugin that every host has: add a word, as in image-locality-rule"
        assert said in capsys.readouterr().err


def test_misspelt_command_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serv"])
    assert "did you mean serve?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["conformance", "unix:x", "--lvel", "core"],
            "berth-sdk conformance: error: the option --lvel is unknown: did you mean --level?",
        ),
        (
            ["new", "x", "--ponits=filter"],
            "berth-sdk new: error: the option --ponits is unknown: did you mean --points?",
        ),
        (["check", "x", "--zzz"], "berth-sdk check: error: the option --zzz is unknown\n"),
    ],
)
def test_misspelt_option_is_corrected(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
