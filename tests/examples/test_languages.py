"""The example plugins of every language: small, complete, and with the decisions of Python's."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from support.examples import EXAMPLES, example
from support.languages import LANGUAGES, PLUGINS, LanguageError, built, chosen, command
from support.places import ROOT

LINES = {"smallest": 100, "bitmaps": 250}
"""The most lines of code that the contract may cost an author, without blank lines and comments."""
COMMENT = re.compile(r"\s*(//|#|/?\*|\*/)")
COMPILED = [name for name in LANGUAGES if LANGUAGES[name].build]
conformance = example("../tests/examples/conformance.py")


def lines(name: str, program: str) -> int:
    """Return the lines of code of one program."""
    files = [EXAMPLES / LANGUAGES[name].folder / path for path in LANGUAGES[name].sources[program]]
    text = "\n".join(file.read_text() for file in files).splitlines()
    return sum(bool(line.strip()) and COMMENT.match(line) is None for line in text)


@pytest.mark.parametrize("program", LINES)
@pytest.mark.parametrize("name", LANGUAGES)
def test_plugins_stay_small(name: str, program: str) -> None:
    assert lines(name, program) <= LINES[program]


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_language_has_the_three_plugins_and_a_page(name: str) -> None:
    assert {"smallest", "bitmaps", "binding"} <= set(LANGUAGES[name].programs)
    assert set(LANGUAGES[name].programs) <= set(PLUGINS)
    assert (EXAMPLES / LANGUAGES[name].folder / "README.md").is_file()


@pytest.mark.parametrize("name", COMPILED)
def test_image_copies_files_that_exist_and_builds_with_the_build_script(name: str) -> None:
    folder = f"examples/{LANGUAGES[name].folder}"
    text = (ROOT / folder / "Dockerfile").read_text().replace("\\\n", " ")
    copied = [
        line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line
    ]
    assert ["proto"] in copied
    assert all((ROOT / path).exists() for paths in copied for path in paths)
    script = f"{folder}/{LANGUAGES[name].build[0].removeprefix('./')}"
    assert script in text
    assert os.access(ROOT / script, os.X_OK)
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)


def test_missing_tool_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for name in COMPILED:
        with pytest.raises(LanguageError, match=rf"needed to build the {name} plugins.*not on PATH: install"):
            built(name)


def test_unknown_language_is_named_with_the_choice() -> None:
    with pytest.raises(LanguageError, match="no language 'cobol': choose from python go"):
        chosen("go cobol")
    assert list(chosen("")) == list(LANGUAGES)
    assert list(chosen("typescript go")) == ["typescript", "go"]


def test_each_pod_that_is_placed_otherwise_is_named() -> None:
    assert conformance.differences({"a/x": "n1", "a/y": "n2"}, {"a/x": "n1", "a/y": "n3", "a/z": "n4"}) == [
        "a/y: n2, with Python n3",
        "a/z: not there, with Python n4",
    ]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", LANGUAGES)
def test_plugins_conform_and_place_pods_as_those_in_python(name: str) -> None:
    missing = [tool for tool in LANGUAGES[name].tools if shutil.which(tool) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{missing[0]} is not on PATH")
    line, wrong = conformance.examined(name, {})
    assert wrong == []
    assert re.fullmatch(rf"{name}: conformant, [1-9]\d* passed, 0 failed", line)
    for program in LANGUAGES[name].programs:
        with conformance.serving(command(name, program), "127.0.0.1:0") as served:
            host, _, port = served.address.rpartition(":")
            assert host == "127.0.0.1"
            assert int(port) > 0
