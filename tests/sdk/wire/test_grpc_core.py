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
    VERBOSITY,
    poll_by_the_caller,
    release_of_grpcio,
    without_setting,
    write_errors_alone,
)
from support.certificates import Authority

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
    entry = ENTRIES["berth"] + "\ntry: main()\nexcept SystemExit: pass\nimport grpc"
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


def test_verbosity_that_the_user_set_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VERBOSITY, "DEBUG")
    write_errors_alone()
    assert os.environ[VERBOSITY] == "DEBUG"


@pytest.mark.slow
@pytest.mark.parametrize("command", ENTRIES)
def test_handshakes_that_fail_are_no_lines_on_standard_error(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody who reaches the port could fill the log with them."""
    monkeypatch.delenv(VERBOSITY, raising=False)
    authority = Authority()
    pair = authority.issue("p")
    for name, content in zip(("crt", "key", "ca"), (*pair, authority.pem), strict=True):
        (tmp_path / name).write_bytes(content)
    run = {"berth": "try: main()\nexcept SystemExit: pass", "berth-sdk": "main(['reflect', 'unix:/nobody'])"}
    entry = f"import sys\n{ENTRIES[command]}\n{run[command]}\n{STRANGERS.format(folder=tmp_path)}"
    assert "refused 5" in _said(entry)


def _said(code: str) -> str:
    """Return what it prints on standard output; standard error has no line of gRPC's core."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if ".cc:" in line] == []
    return done.stdout


STRANGERS = """
import socket, ssl
from concurrent.futures import ThreadPoolExecutor
import grpc
crt, key, ca = (open(f"{folder}/{{name}}", "rb").read() for name in ("crt", "key", "ca"))
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, crt)], ca, True))
server.start()
context = ssl.create_default_context(cafile=f"{folder}/ca")
context.set_alpn_protocols(["h2"])
refused = 0
for _ in range(5):
    try:
        asking = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(asking, server_hostname="127.0.0.1") as one:
            refused += not one.recv(9)
    except OSError:
        refused += 1
print("refused", refused)
server.stop(None).wait()
"""


def test_children_get_what_the_user_set_and_not_what_berth_set() -> None:
    assert without_setting({VARIABLE: SETTING, "a": "b"}) == {"a": "b"}
    assert without_setting({VARIABLE: "other"}) == {VARIABLE: "other"}
