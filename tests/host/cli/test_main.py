"""The `berth` command itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points, version

import click
import pytest
from berth_host.cli.commands import Commands
from berth_host.cli.kubectl.command import kubectl_berth
from berth_host.cli.main import berth
from berth_host.cli.output import OUTPUTS

from .conftest import Run


def leaves(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands below a group."""
    if isinstance(command, Commands):
        for name, below in command.each(click.Context(command)).items():
            yield from leaves(f"{path} {name}", below)
    else:
        yield path, command


def test_version_is_that_of_the_distribution(run: Run) -> None:
    assert run("--version").stdout == f"berth {version('berth-host')}\n"


@pytest.mark.slow
def test_module_and_console_script_are_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "berth_host", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"berth {version('berth-host')}\n"
    (script,) = [entry for entry in entry_points(group="console_scripts") if entry.name == "berth"]
    assert script.value == "berth_host.__main__:main"


def test_help_names_every_command(run: Run) -> None:
    text = run("-h").stdout
    for command in ("check-config", "plugins", "simulate", "why"):
        assert command in text


def test_every_command_with_an_output_has_the_same_choices() -> None:
    choices = {
        path: tuple(parameter.type.choices)
        for path, command in (*leaves("berth", berth), *leaves("kubectl berth", kubectl_berth))
        for parameter in command.params
        if parameter.name == "output" and isinstance(parameter.type, click.Choice)
    }
    assert choices.pop("kubectl berth queue") == (*OUTPUTS, "wide"), "wide as in kubectl get"
    assert set(choices.values()) == {OUTPUTS}
    assert choices.keys() >= {"berth simulate", "berth check-config", "berth bench own", "berth bench soak"}


@pytest.mark.slow
def test_closed_standard_input_is_reported() -> None:
    command = f"{sys.executable} -m berth_host check-config - <&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "standard input: cannot be read: it is closed" in done.stderr


@pytest.mark.sampled(every=3)
@pytest.mark.slow
@pytest.mark.parametrize(("entry", "name"), [("main", "berth"), ("kubectl", "kubectl berth")])
def test_ctrl_c_while_modules_are_imported_is_no_traceback(entry: str, name: str) -> None:
    program = (
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, module, *_):\n"
        "        if module == 'berth_host.cli.main': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        f"from berth_host.__main__ import {entry}\n{entry}()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{name}: interrupted\n")
