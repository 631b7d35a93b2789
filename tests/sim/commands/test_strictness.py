"""Whether a command is strict, and how it ends then."""

from __future__ import annotations

import pytest
from berth_sim.commands.strictness import NEGLECTED, conclude, is_strict


def test_environment_decides_about_strict_without_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_strict(None)
    monkeypatch.setenv("CI", "true")
    assert is_strict(None)
    assert not is_strict(False)
    monkeypatch.setenv("CI", "")
    assert is_strict(True)


def test_run_without_lapses_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    conclude([], strict=True)
    assert capsys.readouterr().err == ""


def test_lapses_end_a_strict_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        conclude(["plugin A failed"], strict=True)
    assert caught.value.code == NEGLECTED
    conclude(["plugin A failed"], strict=False)
    assert "with --strict this is exit code 4" in capsys.readouterr().err


@pytest.mark.parametrize(("strict", "ends"), [(None, True), (True, True), (False, False)])
def test_required_plugin_that_did_nothing_ends_a_command_unless_no_strict_is_given(
    strict: bool | None, ends: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = ["required plugin A never answered: no such file"]
    if not ends:
        conclude(["plugin A failed"], failed, strict=strict)
        assert "with --strict this is exit code 4" in capsys.readouterr().err
        return
    with pytest.raises(SystemExit) as caught:
        conclude(["plugin A failed"], failed, strict=strict)
    assert caught.value.code == NEGLECTED
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "required plugin A never answered: no such file; correct it, set `required: false` to place pods"
        " without it, or give --no-strict: exit code 4"
    )
