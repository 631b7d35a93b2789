"""`berth-sdk serve PLUGIN --extender` as a real process."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.certificates import Authority, pair_files
from support.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
FOLDER = Path(__file__).parent
SERVE = [sys.executable, "-m", "berth_sdk", "serve"]
ZONE = ("extended_plugins:Zone", "--extender", "127.0.0.1:0")
REQUEST = {
    "Pod": {"metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "spec": {"containers": []}},
    "Nodes": {"items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}]},
}


@contextmanager
def extender(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any], str]]:
    """Run the command; the process, the entry of `extenders:` that it printed, and all that it printed."""
    command = [*SERVE, *arguments]
    with subprocess.Popen(
        command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while "nodeCacheCapable" not in printed:
                line = process.stdout.readline()
                assert line, process.stderr.read() if process.stderr else ""
                printed += line
            (entry,) = yaml.safe_load(printed)["extenders"]
            yield process, entry, printed
        finally:
            process.kill()


def ask(url: str, body: Any, context: ssl.SSLContext | None = None) -> Any:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=WAIT_S, context=context) as answer:
        return json.load(answer)


def refused(*arguments: str) -> str:
    """Run a command that must end with 2 and one line; return the line."""
    done = subprocess.run(
        [*SERVE, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.slow
def test_extender_prints_its_entry_serves_and_ends_with_a_signal() -> None:
    with extender(*ZONE, "--args", '{"end": "2"}') as (process, entry, printed):
        assert printed.startswith("# Zone as an HTTP extender of kube-scheduler: filter, preempt\n# - ")
        assert entry["filterVerb"] == "filter"
        answer = ask(f"{entry['urlPrefix']}/{entry['filterVerb']}", REQUEST)
        assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["n2"]
        assert answer["FailedNodes"] == {"n1": "not 2"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        errors = process.stderr.read()
        assert "serving Zone at http://127.0.0.1:" in errors
        assert "stopping" in errors


@pytest.mark.slow
def test_extender_with_tls_asks_for_client_certificates(tmp_path: Path) -> None:
    authority = Authority()
    files = pair_files(tmp_path, "extender", authority.issue("extender"), authority)
    mine = pair_files(tmp_path, "client", authority.issue("x", dns="kube-scheduler"), authority)
    tls = ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    clients = ["--tls-client-ca", str(files.authority), "--tls-client-name", "kube-scheduler"]
    with extender("extended_plugins:Zone", "--extender", "127.0.0.1:0", *tls, *clients) as (
        _,
        entry,
        _printed,
    ):
        assert entry["urlPrefix"].startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(mine.authority))
        if hasattr(ssl, "VERIFY_X509_STRICT"):
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_cert_chain(mine.certificate, mine.key)
        assert len(ask(f"{entry['urlPrefix']}/filter", REQUEST, context)["Nodes"]["items"]) == 2


@pytest.mark.long
@pytest.mark.slow
def test_method_that_hangs_does_not_keep_the_process() -> None:
    stuck = ("extended_plugins:Stuck", "--extender", "127.0.0.1:0", "--grace", "0.2")
    with extender(*stuck) as (process, entry, _printed), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, f"{entry['urlPrefix']}/filter", REQUEST)
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert "1 calls had not ended after 0.2 s" in process.stderr.read()
        with pytest.raises(OSError):
            asked.result(WAIT_S)


def test_server_for_berth_imports_nothing_of_the_extender() -> None:
    code = "import sys, berth_sdk.__main__, berth_sdk.cli.serve; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"aiohttp", "berth_sdk.serve.extender"}.isdisjoint(done.stdout.split())


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("extended_plugins:Zone", "--listen", "unix:/x", "--args", "{}"), "--args: only with --extender"),
        ((*ZONE, "--listen", "unix:/x"), "--listen: not with --extender"),
        (("extended_plugins:Queue", *ZONE), "--extender serves one plugin"),
        ((*ZONE, "--token-file", "t"), "--token-file: give --server too"),
        ((*ZONE, "--in-cluster", "--server", "https://a"), "--in-cluster brings its own server"),
        ((*ZONE, "--in-cluster"), "does not run in a pod"),
        ((*ZONE, "--args", "{"), "--args is not JSON"),
        ((*ZONE, "--args", '{"a":' * 5000 + "1" + "}" * 5000), "--args is not JSON: the values are nested"),
        ((*ZONE, "--args", "[]"), "--args must be a JSON object"),
        ((*ZONE, "--args", '{"end": 1}'), "refuses its arguments (--args): end: must be a string"),
        ((*ZONE, "--node-cache-capable"), "Zone needs data of nodes"),
        ((*ZONE, "--tls-cert", "c"), "--tls-cert and --tls-key go together"),
        ((*ZONE, "--server", "nowhere"), "--server nowhere is no URL"),
        (("extended_plugins:Zone", "--extender", "nowhere"), "write HOST:PORT"),
        (("extended_plugins:Queue", "--extender", "127.0.0.1:0"), "Queue takes part in preEnqueue"),
    ],
)
def test_bad_input_ends_with_2_and_the_cure(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(*arguments)


def test_missing_package_is_named_with_the_extra() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from berth_sdk.__main__ import main\n"
        f"sys.exit(main(['serve', *{list(ZONE)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2
    assert "--extender needs the package aiohttp: pip install 'berth-sdk[extender]'" in done.stderr
