"""gRPC's setting: berth's own processes have it before gRPC is imported, and no other process gets it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from berth_sdk.wire import grpc_core
from berth_sdk.wire.grpc_core import (
    MEASURED,
    SETTING,
    VARIABLE,
    poll_by_the_caller,
    release_of_grpcio,
    without_setting,
)

PROBE = """
import sys
{before}
import os
{entry}
print("grpc" in sys.modules, os.environ.get({variable!r}))
"""


def outcome(entry: str, before: str = "", **environment: str) -> list[str]:
    code = PROBE.format(before=before, entry=entry, variable=VARIABLE)
    base = without_setting(os.environ)
    base.pop(VARIABLE, None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=base | environment
    )
    assert done.stderr == ""
    return done.stdout.split()[-2:]


ENTRIES = {
    "berth": "from berth_host.__main__ import main\nsys.argv = ['berth', '--version']",
    "berth-sdk": "from berth_sdk.__main__ import main",
}


@pytest.mark.parametrize("command", ENTRIES)
def test_entry_point_does_not_import_grpc_before_the_setting(command: str) -> None:
    assert outcome(ENTRIES[command]) == ["False", "None"]


@pytest.mark.slow
def test_the_command_sets_it_and_grpc_takes_it_without_a_word() -> None:
    entry = (
        ENTRIES["berth"]
        + "\ntry: main()\nexcept SystemExit: pass\nimport grpc; grpc.insecure_channel('unix:/x').close()"
    )
    assert outcome(entry) == ["True", SETTING]


@pytest.mark.slow
def test_value_that_the_user_set_stands() -> None:
    entry = ENTRIES["berth"] + "\ntry: main()\nexcept SystemExit: pass"
    assert outcome(entry, **{VARIABLE: "event_engine_client"}) == ["True", "event_engine_client"]


def test_the_release_that_is_installed_was_measured() -> None:
    assert release_of_grpcio() == version("grpcio")
    assert release_of_grpcio().rpartition(".")[0] in MEASURED


def test_an_installation_without_its_folder_is_looked_up_by_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "grpc"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it must not be imported')")
    found = spec_from_file_location("grpc", package / "__init__.py")
    monkeypatch.setattr(grpc_core, "find_spec", lambda _name: found)
    assert release_of_grpcio() == version("grpcio")
    (tmp_path / "grpcio-1.2.3.dist-info").mkdir()
    assert release_of_grpcio() == "1.2.3"


def test_another_release_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(grpc_core, "release_of_grpcio", lambda: "1.99.0")
    poll_by_the_caller()
    assert VARIABLE not in os.environ


def test_children_get_what_the_user_set_and_not_what_berth_set() -> None:
    assert without_setting({VARIABLE: SETTING, "a": "b"}) == {"a": "b"}
    assert without_setting({VARIABLE: "other"}) == {VARIABLE: "other"}
