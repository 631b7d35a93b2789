"""Commands with a configuration that has HTTP extenders: placements, costs, lapses, why."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support.commands import answer, in_process
from support.manifest_objects import node_object, pod_object

from .conftest import Run, Write

Json = dict[str, Any]
Answers = dict[str, Callable[[Json], Any]]
"""An object for the body of each verb; an int: that status."""


@contextmanager
def extender(answers: Answers) -> Iterator[str]:
    """Serve an extender on a thread, as the command has a loop of its own; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            made = answers[self.path.rpartition("/")[2]](body)
            status, raw = (made, b"") if isinstance(made, int) else (200, json.dumps(made).encode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            """Write nothing to standard error, which the tests read."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def configured(address: str, *verbs: str, **more: Any) -> Json:
    scheduler, _ = in_process()
    scheduler["extenders"] = [
        {
            "urlPrefix": f"http://{address}/x",
            "nodeCacheCapable": True,
            "weight": 1,
            "httpTimeout": "30s",
            **{f"{verb}Verb": verb for verb in verbs},
            **more,
        }
    ]
    return scheduler


def cluster(write: Write) -> str:
    return write(node_object("a"), node_object("b"), pod_object("web"))


HONEST: Answers = {
    "filter": lambda body: {"NodeNames": body["NodeNames"]},
    "prioritize": lambda body: [{"Host": "b", "Score": 10}],
    "bind": lambda body: {},
}


def test_simulation_asks_the_extender_posts_its_binding_and_shows_its_costs(run: Run, write: Write) -> None:
    with extender(HONEST) as address:
        config = write(configured(address, "filter", "prioritize", "bind"), name="config.yaml")
        result = run(
            "simulate", "-f", cluster(write), "--config", config, "-o", "json", "--costs", "--strict"
        )
    # The extender bound nothing: no extender reaches an embedded cluster.
    assert [item["node"] for item in answer(result)["placements"]] == ["b"]
    for verb in HONEST:
        (line,) = (
            line.split()
            for line in result.stderr.splitlines()
            if f"extender {address}/x" in line and verb in line
        )
        assert "1" in line


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
def test_extender_that_is_passed_over_is_a_lapse(run: Run, write: Write, verb: str) -> None:
    with extender({**HONEST, verb: lambda _: 503}) as address:
        config = write(configured(address, *HONEST, ignorable=True), name="config.yaml")
        arguments = ("simulate", "-f", cluster(write), "--config", config)
        lenient, strict = run(*arguments), run(*arguments, "--strict")
    assert (lenient.exit_code, strict.exit_code) == (0, 4)
    for result in (lenient, strict):
        assert f"extender {address}/x failed in 1 of 1 calls of {verb}" in result.stderr
        assert "default/web" in result.stdout


def test_why_names_the_extender_and_the_nodes_that_it_refused(run: Run, write: Write) -> None:
    def refused(body: Json) -> Json:
        return {
            "FailedNodes": {"a": "its GPUs are taken"},
            "FailedAndUnresolvableNodes": {"b": "it has no GPU"},
        }

    with extender({"filter": refused}) as address:
        config = write(configured(address, "filter"), name="config.yaml")
        result = run("why", "default/web", "-f", cluster(write), "--config", config)
    shown = " ".join(result.stdout.split())
    assert f"extender {address}/x" in shown
    assert "its GPUs are taken" in shown
    assert "it has no GPU" in shown


def test_message_of_a_failed_extender_has_no_password(run: Run, write: Write) -> None:
    with extender({"filter": lambda _: 500}) as address:
        config = write(configured(f"me:hunter2@{address}", "filter"), name="config.yaml")
        result = run("simulate", "-f", cluster(write), "--config", config, "-v", "--costs")
    assert "failed filter with extender at URL" in " ".join(result.stdout.split())
    assert "hunter2" not in result.stdout + result.stderr
