"""`berth-sdk completion`: the candidates that a shell gets."""

from __future__ import annotations

import pytest
from berth_sdk.__main__ import main
from berth_sdk.cli.completion import SHELLS


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ([""], ["serve", "new", "check", "reflect", "conformance", "completion"]),
        (["re"], ["reflect"]),
        (["--ver"], ["--version"]),
        (["serve", "--l"], ["--listen", "--log-level"]),
        (["serve", "NodeName", "--log-level", "w"], ["warning"]),
        (["serve", "--log-level", "info", "NodeN"], ["NodeName"]),
        (["serve", "--credential-file", ""], []),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["reflect", "unix:"], []),
        (["new", "x", "--language", ""], ["python", "go", "typescript", "rust", "java"]),
        (["check", "NodeN"], ["NodeName"]),
        (["nothing", "--x", ""], ["serve", "new", "check", "reflect", "conformance", "completion"]),
    ],
)
def test_completion_lists_the_candidates_for_a_word(
    words: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["__complete", "berth-sdk", *words]) == 0
    assert capsys.readouterr().out.splitlines() == wanted


def test_completion_of_the_bare_command_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "berth-sdk"]) == 0
    assert "serve" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_calls_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "berth-sdk __complete " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
