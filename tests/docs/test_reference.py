"""The reference pages equal the code: their made parts are up to date, their tables complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from berth_host.attach.state import State
from berth_host.config.berth.points import POINT_RULES
from berth_host.errors import plugins
from berth_host.errors.plugins import PluginError
from berth_host.rpc.call_rules import call_rules

from docs.pages import DOCS, REPOSITORY, Page, all_pages
from docs.reference import config, faults
from docs.reference.sections import SECTIONS, filled, names_in

REFERENCE: Final = DOCS / "reference"
PAGES = all_pages()
_FIRST_COLUMN: Final = re.compile(r"^\| `(?P<name>[^`]+)` \|", re.MULTILINE)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_made_parts_equal_the_generated_text(page: Page) -> None:
    assert page.text == filled(page.text), "run: python tests/docs/generate.py"


def test_every_made_part_is_in_exactly_one_page() -> None:
    found = [name for page in PAGES for name in names_in(page.text)]
    assert sorted(found) == sorted(SECTIONS)


def _names(page: str, heading: str) -> list[str]:
    """Return the first column of the table below a heading."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {heading}\n")
    assert rest, f"{page} has no heading {heading}"
    return _FIRST_COLUMN.findall(rest[rest.index("\n|") :].partition("\n\n")[0])


def test_every_way_in_which_a_call_can_fail_is_described() -> None:
    text = (DOCS / "explanation" / "verdicts-and-policies.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `(\w+)` \| .* \| (yes|no) \|$", text, re.MULTILINE)
    assert {outcome: unknown == "yes" for outcome, unknown in found} == {
        # Of the classes with the same outcome, the uppermost has the usual text.
        failure.outcome: failure.outcome_unknown
        for failure in vars(plugins).values()
        if isinstance(failure, type) and issubclass(failure, PluginError) and PluginError in failure.__bases__
    }


def test_every_state_of_an_attachment_is_described() -> None:
    text = (REFERENCE / "http-api.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("\n### States\n")
    assert _FIRST_COLUMN.findall(rest) == [state.value for state in State]


def test_every_field_of_berth_configuration_is_described() -> None:
    assert _names("configuration.md", "BerthConfiguration") == config.berth_paths()


def test_every_field_of_kube_scheduler_configuration_is_described() -> None:
    assert _names("configuration.md", "KubeSchedulerConfiguration") == config.scheduler_paths()


def test_the_configuration_shows_the_deadlines_and_policies_that_calls_have() -> None:
    rules = call_rules({}, {}, required=True)
    shown = {name: (rule.deadline_ms / 1000, rule.policy.value) for name, rule in POINT_RULES.items()}
    by_point = {_point(rpc): (rule.deadline_s, rule.policy.value) for rpc, rule in rules.items()}
    assert shown == {name: by_point[name] for name in shown}


def _point(rpc: str) -> str:
    return {"SortKeys": "queueSort"}.get(rpc, rpc[0].lower() + rpc[1:])


# --- JSON output ---------------------------------------------------------------------------------------

MANIFESTS: Final = """\
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "2", memory: 4Gi, pods: 9}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "2", memory: 4Gi, pods: 9}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 1500m}}}]}
"""


def _output(tmp_path: Path, *command: str) -> Any:
    path = tmp_path / "cluster.yaml"
    path.write_text(MANIFESTS, encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).parent / "berth", *command, "-f", path, "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _paths(value: Any, prefix: str = "") -> set[str]:
    """Return `a[].b` for every leaf of a JSON object; maps whose keys are names are leaves."""
    if isinstance(value, Mapping) and not prefix.endswith(("annotations", "lacking", "plugins")):
        names = {f"{prefix}.{key}" if prefix else key: inner for key, inner in value.items()}
        return {path for name, inner in names.items() for path in _paths(inner, name)}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return {path for inner in value for path in _paths(inner, f"{prefix}[]")}
    return {prefix}


def test_every_field_that_simulate_prints_is_described(tmp_path: Path) -> None:
    assert _paths(_output(tmp_path, "simulate")) == set(_names("simulate-json.md", "berth simulate"))


def test_every_field_that_why_prints_is_described(tmp_path: Path) -> None:
    printed = _paths(_output(tmp_path, "why", "web-0")) | _paths(_output(tmp_path, "why", "web-2"))
    described = set(_names("simulate-json.md", "berth why"))
    # A list that is empty for one of the two pods is present under its own name.
    assert printed - {"rejections", "nearestFit", "scores"} == described


# --- names of files --------------------------------------------------------------------------------------

_PATH: Final = re.compile(r"`((?:host|sdk|plugins|proto|examples|tests|docs)/[\w./]+)`")


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_file_that_a_page_names_is_there(page: Page) -> None:
    missing = [path for path in _PATH.findall(page.text) if not (REPOSITORY / path).exists()]
    assert missing == []


def test_life_of_a_pod_names_existing_code() -> None:
    text = (DOCS / "explanation" / "life-of-a-pod.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| `([\w./]+\.py)` \| `(\w+)\.(\w+)` \|", text, re.MULTILINE)
    assert len(rows) == 20
    for file, cls, method in rows:
        source = (REPOSITORY / "host" / "berth_host" / file).read_text(encoding="utf-8")
        _, found, body = source.partition(f"\nclass {cls}")
        assert found, f"{file} has no class {cls}"
        assert re.search(rf"\n    (async )?def {method}\(", body), f"{cls} has no method {method}"


def _rows(heading: str) -> set[int]:
    """Return the numbers in the first column of the table below a heading of the failures."""
    text = (REFERENCE / "failures.md").read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {heading}\n")
    return {int(row) for row in re.findall(r"^\| (\d+) \|", rest.partition("\n## ")[0], re.M)}


def test_every_failure_has_a_test_with_real_processes() -> None:
    assert _rows("What happens") == set(faults.by_row()) == _rows("Tests") == set(range(1, 38))


def test_scripted_tests_belong_to_existing_rows() -> None:
    named = [
        row
        for path in (REPOSITORY / "tests" / "host").rglob("test_*.py")
        for row in re.findall(r"def (test_row_\d+\w*)", path.read_text(encoding="utf-8"))
    ]
    assert {row for name in named for row in faults.rows_of(f"::{name}")} == _rows("What happens")


@pytest.mark.parametrize(
    ("name", "rows"), [("::test_row_8_a_cycle", [8]), ("::test_row_6_and_7_hot_swap", [6, 7])]
)
def test_the_rows_of_a_test_are_in_its_name(name: str, rows: list[int]) -> None:
    assert faults.rows_of(name) == rows


def test_listed_test_that_does_not_exist_or_starts_no_process_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, words in (
        ("tests/host/attach/test_folder.py::test_row_4_gone", "there is no "),
        (
            "tests/host/attach/test_failure_table.py::test_row_21_large_state_goes_in_chunks",
            "starts no process",
        ),
    ):
        monkeypatch.setattr(faults, "ELSEWHERE", (name,))
        with pytest.raises(LookupError, match=words):
            faults.process_tests()
