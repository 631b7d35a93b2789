"""A type checker accepts an author's plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
from collections.abc import Mapping, Sequence
from typing import Any

from berth_sdk import CycleState, EventInterest, Handle, Need, NodeView, Plugin, Pod, Status
from berth_sdk.extension_points import DependsOn, NodeMode


class ByArguments(Plugin):
    version = "1.2"
    needs: Sequence[Need] = (Need.nodes(),)
    normalization = None

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        if args:
            self.needs = (Need.nodes(), Need.pods())
            self.events = (EventInterest("Node", ("add",)),)
            self.node_mode = NodeMode.SNAPSHOT
            self.depends_on = DependsOn.ROW
            self.reads = ()
            self.sign_fields = ()
            self.reads_shared = ("Other/key",)
            self.answers_early = False
            self.pod_sensitivity = None

    def filter(self, state: CycleState, pod: Pod, node: NodeView) -> Status:
        return Status.success()


class OfTheClass(ByArguments):
    needs = (Need.pods(),)
    events = ()
    max_concurrency = 3
"""


def checked(tmp_path: Path, text: str) -> tuple[int, str]:
    """Run mypy over a plugin. Returns its exit code and what it says."""
    (tmp_path / "plugin.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "plugin.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_declarations_by_arguments_are_typed_and_those_of_the_class_alone_are_not_assigned(
    tmp_path: Path,
) -> None:
    assert checked(tmp_path, PLUGIN) == (0, "Success: no issues found in 1 source file\n")
    wrong = PLUGIN.replace("self.reads = ()", 'self.reads = "taints"').replace(
        "self.sign_fields = ()", 'self.version = "2"'
    )
    code, said = checked(tmp_path, wrong)
    assert code == 1
    assert 'has type "str", variable has type "Sequence[NodeColumn | NodeLabel] | None"' in said
    assert 'Cannot assign to class variable "version" via instance' in said
    assert "Found 2 errors" in said
