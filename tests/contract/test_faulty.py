"""The conformance kit names each faulty server of `tests/contract/faulty` by its case."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from berth_sdk.conformance import run
from berth_sdk.conformance.case import CASES
from berth_sdk.conformance.handle_double import handle_double
from berth_sdk.conformance.host import Target
from support.kit import SLOW, failures
from support.languages import LANGUAGES, built, run_alone
from support.places import ROOT
from support.waiting import PATIENCE_S

FAULTY = Path(__file__).parent / "faulty"
SERVERS = {"Go": FAULTY / "go" / "main.go", "Python": FAULTY / "python" / "server.py"}
SECRET = "the kit's secret"
ARGS: dict[str, dict[str, Any]] = {"Go": {"limit": 3}, "Python": {"limit": 3, "closed": ["kit-node-9"]}}
ROW = re.compile(r"\| (Go|Python) \| \[`([^`]+)`\]\((\S+\.patch)\) \| [^|]+ \| [^|]+ \| `([^`]+)` \|")
FAULTS = [
    match.groups() for match in map(ROW.fullmatch, (FAULTY / "README.md").read_text().splitlines()) if match
]
numbers = itertools.count()


def faults(language: str) -> list[tuple[str, str]]:
    """Return the faults of one server, each with its case."""
    return [(name, case_id) for found, name, _, case_id in FAULTS if found == language]


def patched(language: str, fault: str, folder: Path) -> Path:
    """Return a copy of a server with a fault; empty: without one."""
    source = SERVERS[language]
    shutil.copy(source, folder)
    if fault:
        patch = source.parent / f"{fault}.patch"
        subprocess.run(
            ["git", "apply", str(patch)], cwd=folder, check=True, env={**os.environ, "GIT_DIR": os.devnull}
        )
    return folder / source.name


def reported(language: str, address: str, restart: Callable[[], None], case_id: str) -> run.Report:
    """Run one case of the kit and the handshake's; empty: all cases but the slow ones."""
    with handle_double() as double:
        target = Target(address, args=ARGS[language], double=double, credential=SECRET, restart=restart)
        (subject,) = (run.configured(target, one) for one in run.subjects(run.hello_of(target)))
        cases = [
            one
            for one in run.chosen(subject, "group")
            if one.id in (case_id, "handshake.answer") or (not case_id and one.id not in SLOW)
        ]
        return run.run(target, subject, cases, limit_s=PATIENCE_S)


def skipped(report: run.Report) -> set[str]:
    """Return the cases that were skipped."""
    return {one.case.id for one in report.results if one.result == "skip"}


# --- the Python server, in the process of the test ----------------------------------------------------------


def report_in_python(fault: str, folder: Path, case_id: str = "") -> run.Report:
    module = types.ModuleType(f"faulty_{next(numbers)}")
    sys.modules[module.__name__] = module  # the decorator of dataclasses looks it up
    exec(compile(patched("Python", fault, folder).read_text(), "server.py", "exec"), module.__dict__)
    address = f"unix:{folder / 'plugin.sock'}"
    servers = [module.serve(address, SECRET)]

    def restart() -> None:
        servers.pop().stop(0).wait()
        servers.append(module.serve(address, SECRET))

    try:
        return reported("Python", address, restart, case_id)
    finally:
        servers.pop().stop(0).wait()
        del sys.modules[module.__name__]


@pytest.mark.long
def test_kit_passes_the_python_server(tmp_path: Path) -> None:
    report = report_in_python("", tmp_path)
    assert failures(report) == {}
    assert not skipped(report) & {case_id for _, case_id in faults("Python")}


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(("fault", "case_id"), faults("Python"))
def test_kit_names_the_fault_of_the_python_server(fault: str, case_id: str, tmp_path: Path) -> None:
    assert list(failures(report_in_python(fault, tmp_path, case_id))) == [case_id]


# --- the Go server, in processes of its own -----------------------------------------------------------------


@pytest.fixture(scope="module")
def go_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the Go server with each fault, in one build; return the folder of the programs."""
    missing = [tool for tool in LANGUAGES["go"].tools if shutil.which(tool) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{missing[0]} is not on PATH")
    built("go")  # makes the code of the contract
    folder = tmp_path_factory.mktemp("go")
    module = ROOT / "examples" / "go"
    names = ["pristine", *(fault for fault, _ in faults("Go"))]
    files = {}
    for name in names:
        (folder / name).mkdir()
        source = patched("Go", "" if name == "pristine" else name, folder / name)
        files[str(module / "faulty" / name / "main.go")] = str(source)
    overlay = folder / "overlay.json"
    overlay.write_text(json.dumps({"Replace": files}))
    into = folder / "bin"
    into.mkdir()
    packages = [f"./faulty/{name}" for name in names]
    done = run_alone(
        "go", module, ["go", "build", "-trimpath", "-overlay", str(overlay), "-o", f"{into}/", *packages]
    )
    assert done.returncode == 0, done.stdout
    return into


@contextmanager
def go_server(program: Path, folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Run the server; yields its address and what restarts it."""
    environment = {
        **os.environ,
        "BERTH_PLUGIN_ENDPOINT": f"unix://{folder}/plugin.sock",
        "BERTH_PLUGIN_CREDENTIAL": SECRET,
    }
    running: list[subprocess.Popen[bytes]] = []

    def stop() -> None:
        process = running.pop()
        process.kill()
        process.communicate()

    def start() -> None:
        process = subprocess.Popen([program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()

    def restart() -> None:
        stop()
        start()

    start()
    try:
        yield f"unix:{folder}/plugin.sock", restart
    finally:
        stop()


@pytest.mark.long
@pytest.mark.slow
def test_kit_passes_the_go_server(go_servers: Path, tmp_path: Path) -> None:
    with go_server(go_servers / "pristine", tmp_path) as (address, restart):
        report = reported("Go", address, restart, "")
    assert failures(report) == {}
    assert not skipped(report) & {case_id for _, case_id in faults("Go")}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("fault", "case_id"), faults("Go"))
def test_kit_names_the_fault_of_the_go_server(
    fault: str, case_id: str, go_servers: Path, tmp_path: Path
) -> None:
    with go_server(go_servers / fault, tmp_path) as (address, restart):
        found = failures(reported("Go", address, restart, case_id))
    assert list(found) == [case_id]


def test_every_patch_has_its_case() -> None:
    listed = {f"{path}" for _, _, path, _ in FAULTS}
    assert listed == {str(patch.relative_to(FAULTY)) for patch in FAULTY.glob("*/*.patch")}
    assert len(listed) > 90
    assert {case_id for _, _, _, case_id in FAULTS} <= {one.id for one in CASES}
