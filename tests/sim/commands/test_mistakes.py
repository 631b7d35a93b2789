"""The mistakes of an author of a plugin: each is found, named with its cure, and no command ends with 0.

Each class is served by a child of `berth simulate`, or made by what the author runs before: `berth-sdk serve`
and a test of the class.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from berth_sdk import DependsOn, Plugin, Status
from berth_sdk.errors import PluginAnswerError
from berth_sdk.testing import PluginHost, make_node, make_pod
from support.manifest_objects import node_object, pod_object
from support.places import ROOT

from .conftest import Run, Write

FILTER = "    def filter(self, state, pod, node):\n        "
SCORE = "    def score(self, state, pod, node):\n        "


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake. `body`: of the class `Mine`. `line`: a pattern of the last line on standard error.

    `point`: where the profile enables the class. `place`: the fields of its entry in the configuration.
    """

    name: str
    body: str
    line: str
    point: str = "filter"
    place: dict[str, Any] = field(default_factory=dict)
    code: int = 4


PLACED = "return Status.success()\n"
MISTAKES = (
    Mistake(
        "an int from filter",
        FILTER + "return 1\n",
        r"never answered: .*filter answered int 1: answer a Status",
    ),
    Mistake("a bool from filter", FILTER + "return True\n", r"never answered: .*filter answered bool True"),
    Mistake("a str from filter", FILTER + "return 'no'\n", r"never answered: .*filter answered str 'no'"),
    Mistake("a float from score", SCORE + "return 0.5\n", r"never answered: .*score.* float", "score"),
    Mistake(
        "too few scores",
        "    def score_nodes(self, state, pod, nodes):\n        return np.zeros(1, dtype=np.int64)\n",
        r"never answered: .*score_nodes.* 1 .* 2",
        "score",
    ),
    Mistake(
        "KeyError in filter", FILTER + "return {}['gpu']\n", r"never answered: .*KeyError: 'gpu'.*mine.py"
    ),
    Mistake(
        "KeyError in __init__",
        "    def __init__(self, args, handle):\n        self.limit = args['limit']\n" + FILTER + PLACED,
        r"never answered: .*KeyError: 'limit'",
    ),
    Mistake(
        "an annotation that is not declared",
        FILTER + "return node.annotations.get('a')\n",
        r"never answered: .*add Need.nodes\(annotation_prefixes=",
    ),
    Mistake(
        "a method whose name is misspelt",
        "    def fliter(self, state, pod, node):\n        " + PLACED,
        r"never answered: .*fliter.*filter",
    ),
    Mistake(
        "a method with a wrong signature",
        "    def filter(self, pod, node):\n        " + PLACED,
        r"never answered: .*filter\(self, state, pod, node\)",
    ),
    Mistake(
        "depends_on of the wrong kind",
        "    depends_on = 'node'\n" + FILTER + PLACED,
        r"never answered: .*depends_on",
    ),
    Mistake(
        "events of the wrong kind", "    events = ('Node',)\n" + FILTER + PLACED, r"never answered: .*events"
    ),
    Mistake(
        "the wrong class in command",
        FILTER + PLACED,
        r"never answered: .*mine:Yours cannot be loaded",
        place={"command": "mine:Yours"},
    ),
    Mistake(
        "the wrong module in command",
        FILTER + PLACED,
        r"never answered: .*No module named 'yours'",
        place={"command": "yours:Mine"},
    ),
    Mistake("comand", FILTER + PLACED, r'did you mean "command"', place={"comand": "mine:Mine"}, code=2),
    Mistake(
        "a command that is not found",
        FILTER + PLACED,
        r"never answered: .*no-such-program",
        place={"command": ["no-such-program"]},
    ),
    Mistake("a name without a place", FILTER + PLACED, r"endpoint", place={"command": None}, code=2),
    Mistake("a point that the class lacks", FILTER + PLACED, r"does not implement score", "score"),
    Mistake(
        "a filter that takes 3 s",
        FILTER + "time.sleep(3)\n",
        r"never answered: .*within 250 ?ms",
        place={"points": {"filter": {"deadline": "250ms"}}},
    ),
    Mistake("a process that ends with 3", FILTER + "os._exit(3)\n", r"never answered: "),
    Mistake("a score of 500", SCORE + "return 500\n", r"answered the score 500.*0\.\.100", "score"),
)


def files(mistake: Mistake, write: Write, folder: Path) -> list[str]:
    """Write the class, a cluster and a configuration; return the arguments of `berth simulate`."""
    head = "import os\nimport time\n\nimport numpy as np\nfrom berth_sdk import Plugin, Status\n\n\n"
    (folder / "mine.py").write_text(f"{head}class Mine(Plugin):\n{mistake.body}")
    serve = [sys.executable, "-m", "berth_sdk", "serve"]
    place = {
        key: [*serve, value] if isinstance(value, str) else value
        for key, value in ({"command": "mine:Mine"} | mistake.place).items()
        if value is not None and not (key == "command" and "comand" in mistake.place)
    }
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {mistake.point: {"enabled": [{"name": "Mine"}]}}}],
    }
    own = {
        "apiVersion": "config.berth.io/v1alpha1",
        "kind": "BerthConfiguration",
        "plugins": [{"name": "Mine", **place}],
    }
    cluster = write(node_object("n1"), node_object("n2"), pod_object("a"))
    return [cluster, "--config", write(scheduler, own, name="config.yaml")]


@pytest.mark.slow
@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("mistake", MISTAKES, ids=[one.name for one in MISTAKES])
def test_mistake_ends_a_simulation_with_its_cure_in_the_last_line(
    mistake: Mistake, run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("simulate", *files(mistake, write, tmp_path))
    assert result.exit_code == mistake.code, result.stderr
    last = result.stderr.splitlines()[-1]
    if mistake.code == 2:
        assert re.search(mistake.line, result.stderr), result.stderr
        return
    assert last.startswith("required plugin Mine ")
    assert re.search(mistake.line, last), last
    assert last.endswith("exit code 4")


def test_no_strict_and_an_optional_plugin_keep_the_exit_code_0(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = {"command": ["no-such-program"]}
    arguments = files(Mistake("", FILTER + PLACED, "", place=missing), write, tmp_path)
    assert run("simulate", *arguments, "--no-strict").exit_code == 0
    optional = Mistake("", FILTER + PLACED, "", place={**missing, "required": False})
    result = run("simulate", *files(optional, write, tmp_path))
    assert result.exit_code == 0, result.stderr
    assert "1 of 1 pod placed" in result.stdout


def test_reload_in_another_folder_names_the_module_that_it_did_not_find(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "berth_sdk", "serve", "--reload", "mine:Mine", "--listen", "unix:p.sock"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "sdk")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"there is no module mine in {tmp_path}" in done.stderr
    assert "start the command in the folder of mine" in done.stderr


def test_answers_that_alternate_fail_the_test_of_a_class_that_depends_on_the_node() -> None:
    class Alternates(Plugin):
        depends_on = DependsOn.NODE
        calls = 0

        def filter(self, state: Any, pod: Any, node: Any) -> Status:
            self.calls += 1
            return Status.success() if self.calls % 2 else Status.unschedulable("not now")

    with pytest.raises(PluginAnswerError, match=r"declare DependsOn.OTHER"):
        PluginHost(Alternates, nodes=[make_node("n1")]).attempt(make_pod("web")).filter()
