"""Asks the real kube-scheduler about every feature gate: set to true, set to false, and left alone.

    python tests/cluster/record_feature_gates.py FILE

Writes FILE, JSON: per gate its stage and default (the metric `kubernetes_feature_enabled` shows all of them),
the answers to `--feature-gates GATE=true` and `=false` ("" for yes, or the error), and what stage it warns
of. `tests/host/config/test_feature_gates.py` compares them with the tables. Needs `make envtest`.
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
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.real_servers import ADMIN, RealServers, free_port, program

_SHOWN = re.compile(r'kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} (\d)')
_REFUSED = re.compile(r'"command failed" err="((?:[^"\\]|\\.)*)"')
_WARNED = re.compile(r"Warning: setting (\w+) feature gate")
_AFTERWARDS = "stat /nowhere: no such file or directory"
"""What it complains about once it has taken the gates."""
_STARTS_WITHIN_S = 30.0


def shown(servers: RealServers) -> dict[str, dict[str, object]]:
    """Stage and default of every gate."""
    access, port = str(servers.kubeconfig(ADMIN)), free_port()
    flags = [f"--{name}={access}" for name in ("kubeconfig", "authentication-kubeconfig")]
    flags += [f"--authorization-kubeconfig={access}", "--leader-elect=false", "--bind-address=127.0.0.1"]
    with subprocess.Popen(
        [program("kube-scheduler"), *flags, f"--secure-port={port}"], stderr=subprocess.DEVNULL
    ) as running:
        try:
            text = _metrics(port, servers.tokens[ADMIN])
        finally:
            running.terminate()
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


def answer(gates: str) -> tuple[str, str]:
    """The error about `--feature-gates GATES`, or "" where it is taken; and the stage that it warns of."""
    flags = ["--secure-port=0", "--kubeconfig=/nowhere", f"--feature-gates={gates}"]
    done = subprocess.run(
        [program("kube-scheduler"), *flags], capture_output=True, text=True, check=False, timeout=60
    )
    found = _REFUSED.search(done.stderr)
    if found is None:
        raise RuntimeError(f"no answer to {gates}: {done.stderr}")
    said = json.loads(f'"{found.group(1)}"')
    warned = _WARNED.search(done.stderr)
    return "" if said == _AFTERWARDS else said, warned.group(1) if warned else ""


def record(servers: RealServers) -> dict[str, dict[str, object]]:
    """Per gate what is shown of it, and both answers."""
    gates = shown(servers)
    with ThreadPoolExecutor(2) as pool:
        yes = pool.map(answer, [f"{name}=true" for name in gates])
        no = pool.map(answer, [f"{name}=false" for name in gates])
        return {
            name: {**gate, "true": true[0], "false": false[0], "warns": true[1] or false[1]}
            for (name, gate), true, false in zip(gates.items(), yes, no, strict=True)
        }


if __name__ == "__main__":
    with TemporaryDirectory() as folder, RealServers(Path(folder)) as started:
        recorded = record(started)
    lines = (f"{json.dumps(name)}: {json.dumps(gate)}" for name, gate in sorted(recorded.items()))
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
