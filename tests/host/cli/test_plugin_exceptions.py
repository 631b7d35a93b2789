"""An exception in a plugin, as the person at `berth simulate` sees it, wherever the plugin lives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.manifest_objects import node_object, pod_object
from support.plugin_processes import PluginProcess

from .conftest import Write

MODULE = """
import sys; from berth_sdk import PluginArgsError

def read(nodes):
    return nodes["x"]

class Raises:
    def filter(self, state, pod, node):
        return read({})

class Unmakeable(Raises):
    def __init__(self, args, handle):
        read({})

class Choosy(Raises):
    def __init__(self, args, handle):
        raise PluginArgsError("limit must be positive")

class Interrupted:
    def filter(self, state, pod, node):
        raise KeyboardInterrupt

class Floods:
    def filter(self, state, pod, node):
        for number in range(5000):
            print("line", number, file=sys.stderr)
"""
PLACE = "KeyError: 'x' at raising.py:5: return nodes[\"x\"]"
LIMIT_S = 60


class Yard:
    """A folder with the module, a node, a pod, and configurations that enable one of its classes."""

    def __init__(self, folder: Path, write: Write) -> None:
        self.folder = folder
        self._write = write
        (folder / "raising.py").write_text(MODULE)
        self._cluster = write(node_object("a"), pod_object("web"))

    def simulate(
        self, name: str, place: dict[str, Any], *options: str, command: tuple[str, ...] = ("simulate",)
    ) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own: its log is configured once per process."""
        enabled = {"filter": {"enabled": [{"name": name}]}}
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "plugins": enabled}],
        }
        own = {
            "apiVersion": "config.berth.io/v1alpha1",
            "kind": "BerthConfiguration",
            "cycleBudget": "30s",
            "plugins": [{"name": name, "points": {"filter": {"policy": "Fail", "deadline": "10s"}}, **place}],
        }
        config = self._write(scheduler, own, name="config.yaml")
        inputs = ("-f", self._cluster, "--config", config, "--no-strict")
        return subprocess.run(
            [sys.executable, "-m", "berth_host", *command, *inputs, *options],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def message(self, name: str, place: dict[str, Any]) -> str:
        """Why the pod is pending."""
        done = self.simulate(name, place, "-o", "json")
        [pod] = json.loads(done.stdout)["pending"]
        return str(pod["message"])


@pytest.fixture
def yard(tmp_path: Path, write: Write) -> Yard:
    return Yard(tmp_path, write)


def local(name: str) -> dict[str, Any]:
    return {"inProcess": f"raising:{name}"}


def child(name: str) -> dict[str, Any]:
    return {"command": [sys.executable, "-m", "berth_sdk", "serve", f"raising:{name}"]}


@pytest.mark.long
@pytest.mark.slow
async def test_message_of_an_exception_is_the_same_in_process_and_served(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(yard.folder)
    served = PluginProcess(yard.folder / "p.sock", "raising:Raises")
    await served.start()
    try:
        places = [local("Raises"), child("Raises"), {"endpoint": served.endpoint}]
        messages = [yard.message("Raises", place) for place in places]
    finally:
        await served.kill()
    wanted = f'running "Raises" filter plugin: plugin "Raises" failed at Filter: {PLACE}'
    assert messages == [wanted] * 3


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("place", [local, child])
@pytest.mark.parametrize("command", [("simulate",), ("why", "web")])
def test_verbose_shows_the_authors_traceback_as_lines(
    yard: Yard, place: Any, command: tuple[str, ...]
) -> None:
    lines = yard.simulate("Raises", place("Raises"), "-v", command=command).stderr.splitlines()
    assert "Raises: Traceback (most recent call last):" in lines
    assert "Raises: KeyError: 'x'" in lines
    assert '    return nodes["x"]' in {line.removeprefix("Raises: ") for line in lines}
    assert not any("berth_sdk/" in line or "berth_host/" in line for line in lines if "File" in line)
    assert not any('\\"timestamp\\"' in line or '"record"' in line for line in lines)
    quiet = yard.simulate("Raises", place("Raises"), command=command).stderr
    assert "Traceback" not in quiet


@pytest.mark.long
@pytest.mark.slow
def test_plugin_that_cannot_be_made_in_process_names_the_line_and_shows_it_with_verbose(yard: Yard) -> None:
    done = yard.simulate("Unmakeable", local("Unmakeable"), "-v")
    assert done.returncode == 2
    assert f"plugin Unmakeable (raising:Unmakeable) cannot be loaded: {PLACE}" in done.stderr
    assert "Unmakeable: Traceback (most recent call last):" in done.stderr.splitlines()


@pytest.mark.sampled(every=4)
@pytest.mark.slow
@pytest.mark.parametrize("place", [local, child])
@pytest.mark.parametrize("command", [("simulate",), ("why", "web")])
def test_plugin_that_refuses_its_arguments_ends_the_command_with_its_words(
    yard: Yard, place: Any, command: tuple[str, ...]
) -> None:
    done = yard.simulate("Choosy", place("Choosy"), command=command)
    assert (done.returncode, done.stdout) == (2, "")
    assert "plugin Choosy (" in done.stderr
    assert "cannot be loaded: it refuses its arguments" in done.stderr
    assert "in profile default-scheduler" in done.stderr
    assert "limit must be positive" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_ctrl_c_that_reaches_a_plugin_in_process_ends_the_command_without_a_traceback(yard: Yard) -> None:
    """It comes as KeyboardInterrupt into the plugin's code, at the second Ctrl-C."""
    done = yard.simulate("Interrupted", local("Interrupted"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "berth: interrupted\n")


@pytest.mark.long
@pytest.mark.slow
def test_reason_of_a_failed_child_is_text(yard: Yard) -> None:
    (yard.folder / "raising.py").write_text("nodes = {}\nsize = nodes['x']\n")
    refused = yard.simulate("Raises", child("Raises")).stderr
    place = "KeyError: 'x' at raising.py:2: size = nodes['x']"
    assert f"berth-sdk serve: raising:Raises cannot be loaded: {place}" in refused
    assert "timestamp" not in refused


@pytest.mark.long
@pytest.mark.slow
def test_number_of_suppressed_log_lines_is_logged(yard: Yard) -> None:
    lines = yard.simulate("Floods", child("Floods"), "-v").stderr.splitlines()
    shown = [line for line in lines if line.startswith("Floods: line ")]
    assert 0 < len(shown) < 5000
    left_out = [int(line.split()[2]) for line in lines if line.endswith(" lines left out")]
    others = len([line for line in lines if line.startswith("Floods: ")]) - len(shown) - len(left_out)
    assert len(shown) + sum(left_out) >= 5000
    assert len(shown) + sum(left_out) + others < 5020
