"""`berth-sdk serve` as a real process: handshake line, signals, and the end of its host."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import pytest
from berth_sdk.extension_points import ExtensionPoint
from berth_sdk.node import Node
from berth_sdk.plugin.v1 import identity_pb2
from berth_sdk.plugin.v1.identity_pb2_grpc import IdentityServiceStub
from berth_sdk.pod import Pod
from support.certificates import Authority, pair_files
from support.sdk_server import RawHost, plugin_args, refused
from support.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
FOLDER = Path(__file__).parent
POD = Pod(name="web", uid="u1")
SERVE = [sys.executable, "-m", "berth_sdk", "serve"]


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a process, and end it with the block."""
    with subprocess.Popen(command, cwd=FOLDER, **options) as process:
        try:
            yield process
        finally:
            process.kill()


class Start(Protocol):
    """Start `berth-sdk serve`."""

    def __call__(self, *arguments: str, **environment: str) -> subprocess.Popen[str]: ...


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [*SERVE, *arguments],
                    cwd=FOLDER,
                    env={key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}
                    | environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield run


def launched(start: Start, folder: Path, name: str = "sample_plugins:Example", **environment: str) -> Any:
    """Start a child as the host does, and return it with its handshake line."""
    process = start(
        name,
        BERTH_PLUGIN_ENDPOINT=f"unix://{folder}/plugin.sock",
        BERTH_PLUGIN_COOKIE="crumb",
        BERTH_HOST_PID=str(os.getpid()),
        **environment,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return process, json.loads(line)


def attached(address: str) -> RawHost:
    host = RawHost(address)
    host.attach()
    host.give_nodes(Node(name="n0"))
    return host


@pytest.mark.slow
def test_a_child_prints_one_line_and_nothing_else_on_standard_output(start: Start, tmp_path: Path) -> None:
    process, line = launched(start, tmp_path)
    assert set(line) == {"protocol", "address", "instance_id", "cookie"}
    assert (line["protocol"], line["cookie"], line["address"]) == (
        "berth/1",
        "crumb",
        f"unix://{tmp_path}/plugin.sock",
    )
    host = attached(line["address"])
    assert host.handshake("again").instance_id == line["instance_id"]
    (group,) = host.filter("Example", POD).verdicts.rejected
    assert list(group.status.reasons) == [str(process.pid)]
    host.close()
    process.stdin.close()
    assert process.wait(WAIT_S) == 0
    assert process.stdout.read() == ""
    errors = process.stderr.read()
    assert "imported" in errors
    assert "asked" in errors
    logged = [json.loads(text) for text in errors.splitlines() if text.startswith("{")]
    assert logged[0]["event"].startswith("serving Example at unix://")


@pytest.mark.slow
def test_a_child_expects_the_credential_of_its_environment_and_removes_it_from_there(
    start: Start, tmp_path: Path
) -> None:
    process, line = launched(start, tmp_path, "sample_plugins:Secretive", BERTH_PLUGIN_CREDENTIAL="sesame")
    host = RawHost(line["address"])
    assert refused(host.handshake).code() is grpc.StatusCode.UNAUTHENTICATED
    host.credential = "sesame"
    host.attach()
    host.give_nodes(Node(name="n0"))
    (group,) = host.filter("Secretive", POD).verdicts.rejected
    assert list(group.status.reasons) == ["BERTH_PLUGIN_CREDENTIAL is not set"]
    host.close()
    process.stdin.close()
    assert process.wait(WAIT_S) == 0
    assert "sesame" not in process.stderr.read()


@pytest.mark.long
@pytest.mark.slow
def test_a_credential_may_come_from_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "credential"
    file.write_text("sesame\n")
    address = f"unix:{tmp_path}/p.sock"
    process = start("sample_plugins:Example", "--listen", address, "--credential-file", str(file))
    host = RawHost(address)
    host.credential = "sesame"
    error = None
    ends_s = time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        try:
            host.handshake()
            break
        except grpc.RpcError as err:  # it does not listen yet
            error = err
            time.sleep(0.05)
    else:
        raise AssertionError(error)
    host.credential = "seasame"
    assert refused(host.handshake).code() is grpc.StatusCode.UNAUTHENTICATED
    host.close()
    process.kill()


@pytest.mark.long
def test_a_missing_credential_file_is_bad_input(start: Start, tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    process = start(
        "sample_plugins:Example", "--listen", f"unix:{tmp_path}/p.sock", "--credential-file", missing
    )
    assert process.wait(WAIT_S) == 2
    assert process.stderr is not None
    assert f"the credential in {missing} cannot be read" in process.stderr.read()


@pytest.mark.slow
def test_a_child_ends_when_its_standard_input_closes(start: Start, tmp_path: Path) -> None:
    process, _ = launched(start, tmp_path)
    process.stdin.close()
    assert process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_a_child_ends_after_its_host_was_killed(tmp_path: Path) -> None:
    # The host is a process of its own here, which starts the child and is then killed hard. The child's
    # standard input stays open in this process, so that only the parent's death can end it.
    stay_open, held = os.pipe()
    environment = os.environ | {
        "BERTH_PLUGIN_ENDPOINT": f"unix://{tmp_path}/plugin.sock",
        "BERTH_PLUGIN_COOKIE": "crumb",
    }
    host_code = (
        "import os, subprocess, sys\n"
        "os.environ['BERTH_HOST_PID'] = str(os.getpid())\n"
        "subprocess.Popen([sys.executable, '-m', 'berth_sdk', 'serve', 'sample_plugins:Example'],"
        f" stdin={stay_open}, close_fds=False).wait()\n"
    )
    with running(
        [sys.executable, "-c", host_code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[stay_open],
    ) as host:
        os.close(stay_open)
        assert host.stdout is not None
        assert json.loads(host.stdout.readline())["cookie"] == "crumb"
        host.kill()
        # The pipe ends when the last process that writes to it, the child, is gone.
        ended = select.select([host.stdout], [], [], WAIT_S)[0] == [host.stdout]
        os.close(held)
        assert ended
        assert host.stdout.read() == b""


@pytest.mark.long
@pytest.mark.slow
def test_a_child_does_not_serve_when_its_host_has_ended_already(start: Start, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    process = start(
        "sample_plugins:Example",
        BERTH_PLUGIN_ENDPOINT=f"unix://{tmp_path}/plugin.sock",
        BERTH_PLUGIN_COOKIE="crumb",
        BERTH_HOST_PID=str(gone.pid),
    )
    output, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, output) == (1, "")
    assert f"the host, process {gone.pid}, is gone" in errors


@pytest.mark.long
@pytest.mark.slow
def test_a_child_behind_a_wrapper_ends_with_its_host(tmp_path: Path) -> None:
    environment = os.environ | {
        "BERTH_PLUGIN_ENDPOINT": f"unix://{tmp_path}/plugin.sock",
        "BERTH_PLUGIN_COOKIE": "crumb",
        "BERTH_HOST_PID": str(os.getpid()),
    }
    command = f"{sys.executable} -m berth_sdk serve sample_plugins:Example; true"
    with running(
        ["/bin/sh", "-c", command],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as wrapper:
        assert wrapper.stdout is not None
        assert wrapper.stdin is not None
        assert json.loads(wrapper.stdout.readline())["cookie"] == "crumb"
        wrapper.stdin.close()
        assert wrapper.wait(WAIT_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_cleanly(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    process, _ = launched(start, tmp_path)
    process.send_signal(number)
    assert process.wait(WAIT_S) == 0


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_the_process_while_a_plugins_module_is_imported(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    text = "import sys, threading\nprint('importing', file=sys.stderr)\nthreading.Event().wait()\n"
    (tmp_path / "endless_plugin.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = start("endless_plugin:Mine", "--listen", f"unix:{tmp_path}/plugin.sock", PYTHONPATH=path)
    assert process.stderr is not None
    assert process.stderr.readline() == "importing\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == code
    assert errors in {"berth-sdk: interrupted\n", ""}


@pytest.mark.slow
def test_a_hanging_call_does_not_keep_the_process_alive(start: Start, tmp_path: Path) -> None:
    process = start(
        "sample_plugins:Hanging",
        "--grace",
        "0.1",
        BERTH_PLUGIN_ENDPOINT=f"unix://{tmp_path}/plugin.sock",
        BERTH_PLUGIN_COOKIE="crumb",
    )
    assert process.stdout is not None
    assert process.stderr is not None
    host = attached(json.loads(process.stdout.readline())["address"])
    call = host.scheduling.Filter.future(_filter(host))
    while "asked" not in process.stderr.readline():
        pass
    process.terminate()
    assert process.wait(WAIT_S) == 0
    assert call.exception() is not None
    host.close()


def _filter(host: RawHost) -> Any:
    from berth_sdk.plugin.v1 import scheduling_pb2
    from support.sdk_server import ALL

    return scheduling_pb2.FilterRequest(ctx=host.ctx("Stuck", POD), candidates=ALL)


def test_process_that_is_no_child_keeps_standard_output_and_ignores_the_end_of_its_input(
    start: Start, tmp_path: Path
) -> None:
    process = start("sample_plugins:Example", "--listen", f"unix:{tmp_path}/plugin.sock")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.close()
    assert "serving Example at" in process.stderr.readline()
    host = attached(f"unix:{tmp_path}/plugin.sock")
    assert host.filter("Example", POD).verdicts.rejected
    host.close()
    process.terminate()
    process.wait(WAIT_S)
    assert process.returncode == 0
    assert process.stdout is not None
    assert process.stdout.read().splitlines() == ["imported", "asked"]


def test_several_plugins_are_served_by_one_process(start: Start, tmp_path: Path) -> None:
    process = start(
        *("sample_plugins:Example", "sample_plugins:Hanging"),
        *("--listen", f"unix:{tmp_path}/plugin.sock", "--max-message-bytes", "1048576"),
    )
    assert process.stderr is not None
    process.stderr.readline()
    host = RawHost(f"unix:{tmp_path}/plugin.sock")
    introduced = host.handshake()
    assert [plugin.name for plugin in introduced.plugins] == ["Example", "Stuck"]
    assert introduced.max_message_bytes == 1048576
    host.close()


@pytest.mark.sampled(every=6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["sample_plugins:Example"], "no address to listen at", id="no address"),
        pytest.param(
            ["sample_plugins:Missing", "--listen", "127.0.0.1:0"], "cannot be loaded", id="no class"
        ),
        pytest.param(["no_such_module:X", "--listen", "127.0.0.1:0"], "No module named", id="no module"),
        pytest.param(
            ["NoSuchPlugin", "--listen", "127.0.0.1:0"], "no installed plugin is named", id="no entry"
        ),
        pytest.param(["sample_plugins:not_a_class", "--listen", "127.0.0.1:0"], "not a class", id="instance"),
        pytest.param(["sample_plugins:Less", "--listen", "127.0.0.1:0"], "write `sort_key`", id="less only"),
        pytest.param(["sample_plugins:Example", "--listen", "0.0.0.0:1"], "--tls-cert", id="open address"),
        pytest.param(
            ["sample_plugins:Example", "--listen", "127.0.0.1:0", "--tls-cert", "c", "--tls-key", "k"],
            "--tls-client-ca, --tls-client-name missing",
            id="half of TLS",
        ),
        pytest.param(
            ["sample_plugins:Example", "sample_plugins:Example", "--listen", "127.0.0.1:0"],
            "two plugins are named Example",
            id="twice",
        ),
        pytest.param(
            ["sample_plugins:Example", "--listen", "unix:/no/such/folder/p.sock"],
            "there is no folder /no/such/folder; make it",
            id="no folder",
        ),
        pytest.param(
            ["sample_plugins:Example", "--listen", f"unix:/tmp/{'x' * 120}"],
            "the path has 125 bytes, and a socket's at most 107",
            id="nobody could dial it",
        ),
        pytest.param(
            ["sample_plugins:Example", "--listen", "127.0.0.1:0", "--max-message-bytes", "4096"],
            "max_message_bytes (--max-message-bytes) is 4096: not in valid range [65536, 268435456]",
            id="limit of messages",
        ),
        pytest.param(
            ["Exampel", "--listen", "127.0.0.1:0"], "; to name a class, write module:Class", id="no module"
        ),
    ],
)
def test_bad_input_is_refused_with_what_to_do(start: Start, arguments: list[str], text: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert text in errors
    assert "Traceback" not in errors


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["unix:plugin.sock", "7001", "localhost:http"])
def test_an_endpoint_of_another_form_in_the_environment_is_named(start: Start, endpoint: str) -> None:
    process = start("sample_plugins:Example", BERTH_PLUGIN_ENDPOINT=endpoint)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert errors.startswith(f"berth-sdk serve: BERTH_PLUGIN_ENDPOINT is '{endpoint}': ")
    assert "unix:///absolute/path" in errors
    assert "Traceback" not in errors


RAISING = {
    "at import": ("nodes = {}\n\ndef size():\n    return nodes['x']\n\nclass Mine:\n    limit = size()\n", 4),
    "what it imports": ("import json\njson.loads('{')\nclass Mine: ...\n", 2),
    "an exit": ("import sys\nsys.exit('no licence')\n", 2),
    "its points": (
        "class Meta(type):\n    def __getattr__(cls, name):\n        raise KeyError(name)\n"
        "class Mine(metaclass=Meta): ...\n",
        3,
    ),
    "no syntax": ("class Mine:\n    def f(:\n", 2),
}


@pytest.mark.sampled(every=5)
@pytest.mark.slow
@pytest.mark.parametrize("what", RAISING)
def test_module_that_raises_is_shown_with_its_authors_frames_alone(
    start: Start, tmp_path: Path, what: str
) -> None:
    text, line = RAISING[what]
    (tmp_path / "raising_plugin.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = start("raising_plugin:Mine", "--listen", "127.0.0.1:0", PYTHONPATH=path)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    files = re.findall(r'File "(.+)", line', errors)
    assert files
    assert {Path(file).name for file in files} == {"raising_plugin.py"}
    last = errors.splitlines()[-1]
    assert last.startswith("berth-sdk serve: raising_plugin:Mine cannot be ")
    assert f" at raising_plugin.py:{line}: {text.splitlines()[line - 1].strip()}" in last


@pytest.mark.sampled(every=2)
@pytest.mark.slow
@pytest.mark.parametrize(("level", "alone"), [("info", True), ("debug", False)])
def test_constructor_that_raises_is_logged_with_its_authors_frames(
    start: Start, tmp_path: Path, level: str, alone: bool
) -> None:
    text = (
        "class Mine:\n    def __init__(self, args, handle):\n        raise OSError('no prices')\n"
        "    def filter(self, state, pod, node): ...\n"
    )
    (tmp_path / "raising_plugin.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    address = f"unix:{tmp_path}/plugin.sock"
    process = start("raising_plugin:Mine", "--listen", address, "--log-level", level, PYTHONPATH=path)
    assert process.stderr is not None
    assert "serving Mine" in process.stderr.readline()
    host = RawHost(address)
    host.handshake()
    details = refused(lambda: host.configure([plugin_args("Mine", [ExtensionPoint.FILTER])])).details() or ""
    assert details.endswith("OSError: no prices at raising_plugin.py:3: raise OSError('no prices')")
    host.close()
    process.terminate()
    _, errors = process.communicate(timeout=WAIT_S)
    names = {Path(file).name for file in re.findall(r'File "(.+)", line', errors)}
    assert (names == {"raising_plugin.py"}) is alone
    assert "raising_plugin.py" in names


@pytest.mark.slow
def test_the_tls_options_admit_only_the_named_hosts(start: Start, tmp_path: Path) -> None:
    authority = Authority()
    files = pair_files(tmp_path, "plugin", authority.issue("plugin"), authority)
    process = start(
        "sample_plugins:Example",
        *("--listen", "127.0.0.1:0", "--tls-cert", str(files.certificate), "--tls-key", str(files.key)),
        *("--tls-client-ca", str(files.authority), "--tls-client-name", "a", "--tls-client-name", "b"),
    )
    assert process.stderr is not None
    line = next(line for line in process.stderr if "serving Example at " in line)
    address = line.split()[-1]
    codes = []
    for name in ("a", "b", "c"):
        pair = authority.issue(name)
        credentials = grpc.ssl_channel_credentials(authority.pem, pair.key, pair.certificate)
        with grpc.secure_channel(
            address, credentials, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            call = IdentityServiceStub(channel).Handshake.with_call
            try:
                call(identity_pb2.HandshakeRequest(attachment_id="x"), timeout=WAIT_S)
                codes.append(grpc.StatusCode.OK)
            except grpc.RpcError as err:
                failed: Any = err
                codes.append(failed.code())
    assert codes == [grpc.StatusCode.OK, grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED]


@pytest.mark.slow
def test_server_without_health_and_reflection_logs_it_once_and_serves(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['grpc_health'] = sys.modules['grpc_reflection'] = None\n"
        "from berth_sdk.__main__ import main\n"
        f"sys.exit(main(['serve', 'sample_plugins:Example', '--listen', 'unix:{tmp_path}/plugin.sock']))"
    )
    with running(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = ""  # gRPC may have words of its own to say between these
        while "serving Example" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        assert said.count("pip install 'berth-sdk[server]'") == 1
        host = attached(f"unix:{tmp_path}/plugin.sock")
        assert host.filter("Example", POD).verdicts.rejected
        host.close()
        process.terminate()
        assert process.wait(WAIT_S) == 0
        assert "berth-sdk[server]" not in process.stderr.read()
