"""Build the example plugins of every language, and run the conformance kit and a simulation with each.

    make conformance-examples
    make conformance-examples LANGUAGES="go typescript"
    TIME_FACTOR=4 make conformance-examples    # on a slow or busy machine: the kit waits longer

Prints a line for each language: `go: conformant, 57 passed, 0 failed`. The counts are those of all programs
of the language. Each simulation must place the same pods on the same nodes as with the first language,
Python. Exits 1 if a language is not conformant, cannot be built, or places a pod elsewhere.
"""

from __future__ import annotations

import json
import os
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.examples import EXAMPLES
from support.languages import LANGUAGES, PLUGINS, LanguageError, built, chosen, command, tested

CLUSTER: Final = EXAMPLES / "conformance" / "cluster.yaml"
ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Maintenance": {"nodes": ["n2", "n5"]},
    "FreeCpu": {},
    "Slots": {"slots": 3},
}
"""The arguments of each plugin."""
POD: Final[Mapping[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "default",
        "name": "web",
        "uid": "uid-web",
        "annotations": {"slots.example.com/use": "true", "slots.example.com/wait": "true"},
    },
    "spec": {"containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}]},
}
"""The pod that the kit schedules. Slots reserves for it, lets it wait, and calls HandleService."""
INSTEAD_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "FreeCpu": ("NodeResourcesFit", "NodeResourcesBalancedAllocation"),
}
"""The default plugins that would decide before a plugin does."""
_SECRET: Final = "the secret of the examples"
_WAIT_S: Final = 60


class Served:
    """A plugin that runs as a host's child does. `address`: as it printed it; the same after a restart.

    `endpoint`: where it listens. `secret`: what it expects of its host; empty: nothing.
    """

    def __init__(self, words: Sequence[str], endpoint: str, secret: str, log: Path) -> None:
        self._words = list(words)
        self._environment = {
            **os.environ,
            "BERTH_PLUGIN_ENDPOINT": endpoint,
            "BERTH_PLUGIN_COOKIE": "conformance",
            "BERTH_PLUGIN_CREDENTIAL": secret,
        }
        self._log = log
        self._process = self._started()
        self.address = self._answered()

    def _started(self) -> subprocess.Popen[str]:
        with self._log.open("a") as errors:
            return subprocess.Popen(
                self._words,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def _answered(self) -> str:
        """Return the address in the line that the plugin prints. Raises LanguageError."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise LanguageError(
                f"{' '.join(self._words)} ended with exit code {code} before it served:"
                f" {self._log.read_text(errors='replace').strip()}"
            )
        address: str = json.loads(line)["address"]
        return address

    def restart(self) -> None:
        """Kill the process, and start another one, which serves at the same address."""
        self._process.kill()
        self._process.communicate()
        self._process = self._started()
        self._answered()

    def stop(self) -> None:
        """Close standard input, with which a child ends. Raises LanguageError if it does not end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise LanguageError(
                f"{' '.join(self._words)} did not end when its standard input closed"
            ) from None
        finally:
            self._process.stdout.close()


@contextmanager
def serving(words: Sequence[str], endpoint: str = "", secret: str = "") -> Iterator[Served]:
    """Start a plugin as a host starts a child, and end it.

    `endpoint`: where it listens; empty: at a socket of its own. `secret`: what it expects of its host.
    """
    with tempfile.TemporaryDirectory(prefix="berth-conformance-") as folder:
        served = Served(words, endpoint or f"unix://{folder}/plugin.sock", secret, Path(folder) / "log")
        try:
            yield served
        finally:
            served.stop()


@contextmanager
def restarted_by(served: Served, folder: Path) -> Iterator[str]:
    """Yield a command that restarts the plugin. The command ends when the new process serves."""

    class Requests(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                served.restart()
            except LanguageError as err:
                self.wfile.write(str(err).encode())

    path = str(folder / "restart.sock")
    ask = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        " sys.exit(s.makefile().read() or 0)"
    )
    with socketserver.UnixStreamServer(path, Requests) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield shlex.join([sys.executable, "-S", "-c", ask, path])
        finally:
            server.shutdown()
            thread.join()


def kit(words: Sequence[str], *options: str) -> dict[str, Any]:
    """Return the conformance kit's report about a plugin, which expects a secret and is restarted.

    `options`: more options of the kit.
    """
    with tempfile.TemporaryDirectory(prefix="berth-conformance-") as folder:
        secret = Path(folder) / "secret"
        secret.write_text(_SECRET)
        with serving(words, secret=_SECRET) as served, restarted_by(served, Path(folder)) as restart:
            factor = os.environ.get("TIME_FACTOR", "1")
            given = [
                "--credential-file",
                str(secret),
                "--restart",
                restart,
                "--time-factor",
                factor,
                *options,
            ]
            done = subprocess.run(
                [sys.executable, "-m", "berth_sdk", "conformance", served.address, "--json", *given],
                capture_output=True,
                text=True,
                check=False,
            )
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise LanguageError(f"the kit broke (exit code {done.returncode}):\n{done.stderr.strip()}") from None
    return report


def skipped_for_options(report: Mapping[str, Any]) -> list[str]:
    """Return the cases of a report that were skipped although `kit` gives the option that they need."""
    return [
        case["id"]
        for case in report["cases"]
        if case["result"] == "skip" and case["needs"] in ("--restart", "--credential-file")
    ]


def configuration(plugin: str, words: list[str]) -> str:
    """Return the configuration of a host that starts the plugin as its child."""
    disabled = [{"name": other} for other in INSTEAD_OF.get(plugin, ())]
    profile = {
        "plugins": {"multiPoint": {"enabled": [{"name": plugin}], "disabled": disabled}},
        "pluginConfig": [{"name": plugin, "args": ARGUMENTS[plugin]}],
    }
    kube = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "cycleBudget": "60s",
        "plugins": [{"name": plugin, "command": words}],
    }
    return yaml.safe_dump_all([kube, own])


def placements(plugin: str, words: list[str]) -> dict[str, str]:
    """Return the node of each pod of the example cluster, with the plugin; a pending pod has its message."""
    with tempfile.TemporaryDirectory(prefix="berth-conformance-") as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(configuration(plugin, words))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "berth_host",
                "simulate",
                "-f",
                str(CLUSTER),
                "--config",
                str(config),
                "-o",
                "json",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise LanguageError(
            f"berth simulate failed (exit code {done.returncode}):\n{done.stderr.strip()}"
        ) from None
    placed = {one["pod"]: one["node"] for one in answer["placements"]}
    return placed | {one["pod"]: f"pending: {one['message']}" for one in answer["pending"]}


def differences(placed: Mapping[str, str], reference: Mapping[str, str]) -> list[str]:
    """Return a line for each pod that is placed otherwise than in `reference`."""
    pods = sorted(placed.keys() | reference.keys())
    return [
        f"{pod}: {placed.get(pod, 'not there')}, with Python {reference.get(pod, 'not there')}"
        for pod in pods
        if placed.get(pod) != reference.get(pod)
    ]


def examined(name: str, reference: dict[str, dict[str, str]]) -> tuple[str, list[str]]:
    """Build, test and examine one language.

    `reference`: the placements with the first language, by plugin; those that are missing are made here.

    Returns the line about the language, and what is wrong, a line each. Raises LanguageError.
    """
    built(name)
    tested(name)
    passed, failed, wrong = 0, 0, []
    for program in LANGUAGES[name].programs:
        plugin, words = PLUGINS[program], command(name, program)
        report = kit(words, "--args", json.dumps(ARGUMENTS[plugin]), "--pod", json.dumps(POD))
        passed += report["passed"]
        failed += report["failed"]
        wrong += [
            f"{name} {program}: {case['id']}: {case['detail']}"
            for case in report["cases"]
            if case["result"] == "fail"
        ]
        wrong += [f"{name} {program}: {case} was skipped" for case in skipped_for_options(report)]
        if plugin not in reference:
            first = next(iter(LANGUAGES))
            reference[plugin] = placements(plugin, command(first, program))
        placed = placements(plugin, words)
        wrong += [f"{name} {program}: {one}" for one in differences(placed, reference[plugin])]
    word = "not conformant" if failed else "other placements" if wrong else "conformant"
    return f"{name}: {word}, {passed} passed, {failed} failed", wrong


def main() -> int:
    """Examine the languages that $LANGUAGES names, or all. Return the exit code."""
    reference: dict[str, dict[str, str]] = {}
    code = 0
    try:
        names = list(chosen(os.environ.get("LANGUAGES", "")))
    except LanguageError as err:
        print(err, file=sys.stderr)
        return 2
    for name in names:
        try:
            line, wrong = examined(name, reference)
        except LanguageError as err:
            line, wrong = f"{name}: not built or not run", [str(err)]
        print(line, flush=True)
        for one in wrong:
            print(f"  {one}", file=sys.stderr, flush=True)
        code = code or bool(wrong)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
