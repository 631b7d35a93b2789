"""`berth-sdk conformance`: its exit codes, its text, its JSON and its JUnit."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import grpc
import pytest
from berth_sdk.__main__ import main
from berth_sdk.conformance import host, run
from berth_sdk.plugin.v1 import common_pb2 as pb
from berth_sdk.plugin.v1 import identity_pb2 as identity
from support.conforming_plugin import ConformingPlugin, RefusalError
from support.places import ROOT


class Judge(ConformingPlugin):
    """A plugin with one point, so that few cases run."""

    points: ClassVar[tuple[str, ...]] = ("PERMIT",)
    is_snapshot: ClassVar[bool] = False


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with Judge().serving(tmp_path) as found:
        yield found


def test_conformant_plugin_ends_with_0_and_its_verdict(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", address]) == 0
    *cases, verdict = capsys.readouterr().out.splitlines()
    passed = sum(line.startswith("pass  ") for line in cases)
    skipped = sum(line.startswith("skip  ") for line in cases)
    assert passed > 15
    assert verdict == f"Kit: conformant, {passed} passed, 0 failed, {skipped} skipped"


class SkipsPlainPods(ConformingPlugin):
    """Has work for the pods alone whose annotation asks for it."""

    points: ClassVar[tuple[str, ...]] = ("RESERVE", "PRE_BIND")
    is_snapshot: ClassVar[bool] = False

    def Reserve(self, request: Any) -> Any:  # noqa: N802
        answer = super().Reserve(request)
        asks = request.ctx.pod.summary.annotations.get("kit.example.com/use")
        if not asks and answer.ctx.status.code == pb.PluginStatus.CODE_SUCCESS:
            del self.reserved[request.ctx.plugin, request.ctx.cycle_id]
            answer.ctx.status.code = pb.PluginStatus.CODE_SKIP
        return answer


POD_IN_YAML = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  creationTimestamp: 2026-11-20T10:00:00Z
  annotations: {kit.example.com/use: "true"}
spec:
  containers:
  - name: web
    image: example.com/web:1
    resources: {requests: {cpu: 100m}}
"""


def test_verdict_says_which_options_the_skipped_cases_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(POD_IN_YAML, encoding="utf-16")  # as PowerShell writes it
    with SkipsPlainPods().serving(tmp_path) as address:
        assert main(["conformance", address, "--level", "binding"]) == 0
        *_, plain = capsys.readouterr().out.splitlines()
        assert main(["conformance", address, "--level", "binding", "--pod", str(pod)]) == 0
        *_, asked = capsys.readouterr().out.splitlines()
    need = re.fullmatch(
        r"Kit: conformant as far as asked: (\d+) cases need --pod, 1 case needs --restart; .* skipped", plain
    )
    assert need and int(need[1]) > 10, plain
    assert re.fullmatch(
        r"Kit: conformant as far as asked: \d+ cases need --args or --pod, 2 cases need --restart; .*", asked
    ), asked


def test_pod_may_be_yaml_in_the_option_itself(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", address, "--level", "core", "--pod", POD_IN_YAML]) == 0
    assert main(["conformance", address, "--level", "core", "--pod", "{a: b"]) == 2
    assert (
        "--pod: this is no manifest in YAML or JSON (line 2: yaml: while parsing" in capsys.readouterr().err
    )


def test_pod_in_yaml_without_pyyaml_names_the_extra(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "berth_sdk.yaml.reader", raising=False)
    assert main(["conformance", address, "--pod", POD_IN_YAML]) == 2
    assert "this is YAML, which needs PyYAML: install berth-sdk[yaml]" in capsys.readouterr().err


def test_json_has_every_case_and_the_numbers(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "kit.xml"
    assert main(["conformance", address, "--json", "--junit", str(junit)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["endpoint", "plugin", "points", "cases", "passed", "failed", "skipped"]
    assert (found["endpoint"], found["plugin"], found["points"]) == (address, "Kit", ["permit"])
    assert all(list(one) == ["id", "point", "level", "result", "detail", "needs"] for one in found["cases"])
    assert len(found["cases"]) == found["passed"] + found["failed"] + found["skipped"]
    assert {one["level"] for one in found["cases"]} == {"core", "binding"}
    suite = ElementTree.parse(junit).getroot()[0]
    assert (int(suite.attrib["tests"]), suite.attrib["failures"]) == (len(found["cases"]), "0")


def test_level_leaves_out_the_later_ones(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", address, "--level", "core", "--json"]) == 0
    assert {one["level"] for one in json.loads(capsys.readouterr().out)["cases"]} == {"core"}


class Refuses(Judge):
    def Configure(self, request: Any) -> Any:  # noqa: N802
        return identity.ConfigureResponse(error="slots: must be a whole number above 0")


def test_refused_arguments_are_one_line_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "kit.xml"
    with Refuses().serving(tmp_path) as address:
        assert main(["conformance", address, "--junit", str(junit)]) == 1
    assert capsys.readouterr().out == (
        "Kit: not conformant: Configure refuses the arguments: slots: must be a whole number above 0: give"
        " the plugin's arguments with --args\n"
    )
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("1", "1")


class OfAnotherMajor(Judge):
    major: ClassVar[int] = 2


def test_server_of_another_major_fails_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with OfAnotherMajor().serving(tmp_path) as address:
        assert main(["conformance", address]) == 1
    assert "Handshake supports the majors 2; the kit speaks major 1" in capsys.readouterr().out


class DiesInConfigure(Judge):
    def Configure(self, request: Any) -> Any:  # noqa: N802
        assert self.server is not None
        self.server.stop(0)
        raise RefusalError(grpc.StatusCode.UNAVAILABLE, "the process ends")


def test_server_that_died_before_the_first_case_is_told_with_its_last_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "RETURN_S", 0.0)
    with DiesInConfigure().serving(tmp_path) as address:
        assert main(["conformance", address]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("fail  handshake.answer: Handshake failed with UNAVAILABLE: ")
    assert "; before the first case: Configure failed with " in first


class ServesNothing(Judge):
    names: ClassVar[tuple[str, ...]] = ()


def test_server_without_plugins_fails_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ServesNothing().serving(tmp_path) as address:
        assert main(["conformance", address]) == 1
    out = capsys.readouterr().out
    assert "fail  handshake.answer: Handshake answers no plugins; a server serves at least one" in out
    assert "skip  handshake.repeat: the server serves no plugin of this contract" in out
    assert "kit.sock: not conformant, 0 passed, 1 failed, " in out.splitlines()[-1]


class WritesControls(Judge):
    names: ClassVar[tuple[str, ...]] = ("Kit\n\x1b[2J",)

    def Permit(self, request: Any) -> Any:  # noqa: N802
        raise RefusalError(grpc.StatusCode.INTERNAL, "one\npass  permit.answer\x1b[2J")


def test_what_a_server_says_cannot_write_a_line_of_the_kit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with WritesControls().serving(tmp_path) as address:
        assert main(["conformance", address]) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert "pass  permit.answer" not in "".join(line[:19] for line in lines)
    assert "      pass  permit.answer\\x1b[2J" in lines
    assert last.startswith("Kit\\n\\x1b[2J: not conformant, ")


def test_nobody_there_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", f"unix:{tmp_path}/nobody.sock"]) == 3
    assert "no gRPC server can be reached there" in capsys.readouterr().err


def error_of(junit: Path) -> str:
    """Return the error that a file of JUnit holds, alone."""
    (suite,) = ElementTree.parse(junit).getroot()
    assert (suite.attrib["tests"], suite.attrib["errors"]) == ("1", "1")
    ((error,),) = suite
    assert error.tag == "error"
    return error.attrib["message"]


def test_junit_of_a_run_without_results_holds_the_error_in_place_of_earlier_results(
    address: str, tmp_path: Path
) -> None:
    junit = tmp_path / "kit.xml"
    for words, code, text in (
        ([f"unix:{tmp_path}/nobody.sock"], 3, "no gRPC server can be reached there"),
        ([address, "--plugin", "Other"], 2, "the server has no plugin 'Other'"),
        ([address, "--args", "{"], 2, "--args: this is not JSON"),
    ):
        junit.write_text("<testsuites><testsuite name='yesterday' failures='0'/></testsuites>")
        assert main(["conformance", *words, "--junit", str(junit)]) == code
        assert text in error_of(junit)


def test_junit_of_a_run_that_is_stopped_holds_an_error(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    junit = tmp_path / "kit.xml"

    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", stopped)
    with suppress(KeyboardInterrupt):
        main(["conformance", address, "--junit", str(junit)])
    assert "the kit did not end" in error_of(junit)


def test_junit_file_that_cannot_be_written_is_named_before_the_first_case(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", address, "--junit", "/proc/version"]) == 2
    printed = capsys.readouterr()
    assert "--junit /proc/version: " in printed.err and "choose another file" in printed.err
    assert printed.out == ""


def test_server_of_something_else_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        assert main(["conformance", f"127.0.0.1:{server.getsockname()[1]}"]) == 3
        server.shutdown(socket.SHUT_RDWR)
    assert "127.0.0.1" in capsys.readouterr().err


class Hangs(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def Handshake(self, request: Any) -> Any:  # noqa: N802
        self.over.wait()
        raise RefusalError(grpc.StatusCode.UNAVAILABLE)


def test_handshake_that_hangs_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host, "HANDSHAKE_S", 0.2)
    plugin = Hangs()
    with plugin.serving(tmp_path) as address:
        assert main(["conformance", address]) == 3
        plugin.over.set()
    assert "no answer to Handshake" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--args", "{"], "--args: this is not JSON"),
        (["--args", "[]"], "--args []: "),
        (["--args", "/no/such/file"], "--args /no/such/file: "),
        (["--args", '{"a": "\\ud800"}'], "surrogates not allowed: the contract brings arguments as"),
        (["--args", '{"a": 1' + 400 * "0" + "}"], "int too large to convert to float: the contract brings"),
        (["--args", '{"a":' * 5000 + "1" + "}" * 5000], "--args: the values are nested too deeply"),
        (["--args", '{"a":' * 40 + "1" + "}" * 40], "--args: the values are nested too deeply"),
        (["--args", '{"a": NaN}'], "--args: this is not JSON (NaN is no number of JSON)"),
        (["--args", ""], "--args is empty: write a JSON object or the path of a file"),
        (["--pod", str(ROOT / "deploy/manifests/beside.yaml")], "beside.yaml: there are "),
        (["--pod", '{"kind": "Node"}'], "--pod: this is a Node: write a core/v1 Pod"),
        (
            ["--credential-file", "/no/such/file"],
            "--credential-file /no/such/file: No such file or directory",
        ),
        (["--credential-file", "/dev/null"], "--credential-file /dev/null: the file is empty"),
        (["--plugin", "Other"], "the server has no plugin 'Other'; it has Kit"),
        (["--junit", "/no/such/folder/kit.xml"], "there is no such folder"),
        (["--junit", "/"], "--junit /: this is a folder: add the name of a file"),
        (["--tls-ca", "/no/such/file"], "add --tls-cert, --tls-key"),
    ],
    ids=[
        "broken JSON",
        "a list",
        "no file",
        "half a character",
        "a huge number",
        "JSON that is nested very deeply",
        "JSON that a message cannot hold",
        "not a number",
        "nothing",
        "several documents",
        "another kind",
        "no file with a secret",
        "no secret",
        "another plugin",
        "no folder",
        "a folder",
        "half of TLS",
    ],
)
def test_wrong_options_end_with_2_and_the_remedy(
    words: list[str], text: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", address, *words]) == 2
    assert text in capsys.readouterr().err
