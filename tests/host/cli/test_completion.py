"""`berth completion`: the words that a shell gets at TAB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from berth_host.cli.main import berth
from click.testing import CliRunner
from docs.pages import all_pages

from .conftest import Run

BASH, FISH = shutil.which("bash"), shutil.which("fish")


def asked(*words: str, shell: str = "zsh") -> str:
    """Return the completions of the last word of a line, as the shell gets them."""
    line = {"COMP_WORDS": " ".join(["berth", *words]), "COMP_CWORD": str(len(words))}
    if shell == "fish":
        line["COMP_CWORD"] = words[-1]
    environment = {"_BERTH_COMPLETE": f"{shell}_complete", **line}
    return CliRunner().invoke(berth, [], prog_name="berth", env=environment).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_for_the_shell_that_is_named(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0
    assert f"{shell}_complete" in done.stdout
    assert run("completion", "tcsh").exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["sim"], "simulate"),
        (["simulate", "--out"], "--output"),
        (["simulate", "-o", "y"], "yaml"),
        (["bench", "own", "Plain/5"], "Plain/5000Nodes"),
        (["scheduler", "--leader-elect-re"], "--leader-elect-renew-deadline"),
        (["scheduler", "--no-such-flag", "--pro"], "--profiling"),
    ],
)
def test_commands_and_options_are_completed(shell: str, words: list[str], wanted: str) -> None:
    assert wanted in asked(*words, shell=shell)


@pytest.mark.parametrize(
    "words", [["simulate", "a"], ["simulate", "--config", "a"], ["why", "web", "-f", "a"]]
)
def test_paths_are_left_to_the_shell(words: list[str]) -> None:
    assert asked(*words, shell="bash").strip() == "file,a"


@pytest.mark.slow
@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(
    ("function", "words", "wanted"),
    [
        ("_berth_completion", "berth check", "check-config"),
        ("_berth_sdk_completion", "berth-sdk refl", "reflect"),
    ],
)
def test_lines_of_the_page_complete_both_commands_in_bash(
    tmp_path: Path, function: str, words: str, wanted: str
) -> None:
    (page,) = [page for page in all_pages() if page.name == "docs/how-to/complete-in-a-shell.md"]
    (lines,) = [block.text for block in page.blocks if block.language == "sh"]
    # As bash itself does it at TAB: the function of the command, with the line's words.
    question = (
        f"{lines}COMP_WORDS=({words}); COMP_CWORD=1; {function} {words.split()[0]}\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p " + words.split()[0]
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(BASH), "--norc", "-c", question],
        env=os.environ | {"PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = done.stdout.splitlines()
    assert (said[0], function in said[1]) == (wanted, True), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(FISH is None, reason="needs fish")
@pytest.mark.parametrize(
    ("words", "wanted"), [("berth check", "check-config"), ("berth-sdk refl", "reflect")]
)
def test_lines_of_the_page_complete_both_commands_in_fish(tmp_path: Path, words: str, wanted: str) -> None:
    (page,) = [page for page in all_pages() if page.name == "docs/how-to/complete-in-a-shell.md"]
    (lines,) = [block.text for block in page.blocks if "fish | source" in block.text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(FISH), "--no-config", "-c", f"{lines}complete -C '{words}'"],
        env=os.environ | {"PATH": path, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.splitlines()[0].split("\t")[0] == wanted, done.stderr
