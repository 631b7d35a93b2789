"""Record the real kube-scheduler's answer to every feature gate: set to true, set to false, and not set.

    python tests/cluster/record_feature_gates.py FILE

Writes FILE, JSON. Under `gates`: stage and default (the metric `kubernetes_feature_enabled` shows all), the
answers to `--feature-gates GATE=true` and `=false` ("" if accepted, else the error), and the warning that it
writes. Under `lines`: the answers to other values of the flag, with the exit code.
`tests/host/config/test_feature_gates.py` compares it with the tables,
`tests/host/cli/scheduler/test_recorded_gates.py` with the command line. Needs `make envtest`.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from berth_bench.versus.free_ports import free_port
from berth_bench.versus.real_servers import ADMIN, RealServers, program

_SHOWN = re.compile(r'kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)')
_REFUSED = re.compile(r'"command failed" err="((?:[^"\\]|\\.)*)"')
_WARNED = re.compile(r'"(Warning: setting \w+ feature gate[^"]*)"')
_AFTERWARDS = "stat /nowhere: no such file or directory"
"""The error that follows after kube-scheduler has accepted the gates."""
_STARTS_WITHIN_S = 30.0
LINES = (
    "NoSuchGate=true",
    "GangScheduling=true,NoSuchGate=true,DynamicResourceAllocation=false",
    "AllGA=true",
    "=true",
    "GangScheduling",
    "GangScheduling=maybe",
    "GangScheduling=yes",
    "GenericWorkload=TRUE",
    "GenericWorkload=t",
    " GenericWorkload = true ",
    ",GenericWorkload=true,,",
    "GenericWorkload=true;GangScheduling=true",
    "GangScheduling=true,GenericWorkload=true",
    "GangScheduling=true,GangScheduling=false",
    "AllAlpha=true,GenericWorkload=false",
    "AllBeta=false",
    "AllBeta=false,NodeDeclaredFeatures=true",
    "AllBeta=false,InPlacePodLevelResourcesVerticalScaling=true",
    "kube:",
    "kube:GenericWorkload=true",
    "kube:GangScheduling",
    "kube:GangScheduling=true,kube:GenericWorkload=true",
    "kube:GenericWorkload=true,StorageCapacityScoring=true",
    "other:GangScheduling=true",
)
"""Values of the flag with several gates, or in other spellings."""


def shown(servers: RealServers) -> dict[str, dict[str, object]]:
    """Return stage and default of every gate."""
    access, port = str(servers.kubeconfig(ADMIN)), free_port()
    flags = [f"--{name}={access}" for name in ("kubeconfig", "authentication-kubeconfig")]
    flags += [f"--authorization-kubeconfig={access}", "--leader-elect=false", "--bind-address=127.0.0.1"]
    with subprocess.Popen(
        [program("kube-scheduler"), *flags, f"--secure-port={port}"], stderr=subprocess.DEVNULL
    ) as running:
        try:
            text = _metrics(port, servers.tokens[ADMIN])
        finally:
            running.kill()
    return {
        name: {"stage": stage or "GA", "default": value == "1"} for name, stage, value in _SHOWN.findall(text)
    }


def _metrics(port: int, token: str) -> str:
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    ends_s = time.monotonic() + _STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(request, context=insecure) as answer:
                return str(answer.read().decode())
        except (OSError, urllib.error.URLError):
            if time.monotonic() > ends_s:
                raise
            time.sleep(0.2)


@dataclass(frozen=True)
class Answer:
    """An answer. `error`: about `--feature-gates GATES`, "" if accepted. `exit_code`: None if accepted."""

    error: str
    warning: str
    exit_code: int | None


def answer(gates: str) -> Answer:
    """Return kube-scheduler's answer to a value of the flag. Raises RuntimeError if there is none."""
    flags = ["--secure-port=0", "--kubeconfig=/nowhere", f"--feature-gates={gates}"]
    done = subprocess.run(
        [program("kube-scheduler"), *flags], capture_output=True, text=True, check=False, timeout=60
    )
    found = _REFUSED.search(done.stderr)
    if found is None:
        raise RuntimeError(f"no answer to {gates}: {done.stderr}")
    said = json.loads(f'"{found.group(1)}"')
    warned = _WARNED.search(done.stderr)
    warning = warned.group(1) if warned else ""
    return Answer("", warning, None) if said == _AFTERWARDS else Answer(said, warning, done.returncode)


def record(servers: RealServers) -> dict[str, dict[str, dict[str, object]]]:
    """Return `gates` (per gate its stage and default, and both answers) and `lines` (the answer to each of
    LINES).
    """
    gates = shown(servers)
    with ThreadPoolExecutor(2) as pool:
        lines = zip(LINES, pool.map(answer, LINES), strict=True)
        yes = pool.map(answer, [f"{name}=true" for name in gates])
        no = pool.map(answer, [f"{name}=false" for name in gates])
        return {
            "gates": {
                name: {
                    **gate,
                    "true": true.error,
                    "false": false.error,
                    "warns": true.warning or false.warning,
                }
                for (name, gate), true, false in zip(gates.items(), yes, no, strict=True)
            },
            "lines": {line: {"said": said.error, "exit": said.exit_code} for line, said in lines},
        }


def _text(part: dict[str, dict[str, object]]) -> str:
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(part.items()))
    return "{\n" + ",\n".join(rows) + "\n}"


if __name__ == "__main__":
    with TemporaryDirectory() as folder, RealServers(Path(folder)) as started:
        recorded = record(started)
    text = ",\n".join(f"{json.dumps(name)}: {_text(part)}" for name, part in recorded.items())
    Path(sys.argv[1]).write_text("{" + text + "}\n")
