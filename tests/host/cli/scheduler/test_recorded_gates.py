"""`--feature-gates` is read, taken and refused as kube-scheduler 1.37.2 and 1.36.2 were seen to do."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from berth_host.cli.main import berth
from berth_host.cli.scheduler.flag_kinds import gate_values
from berth_host.cli.scheduler.parsing import parse
from berth_host.config.feature_gates import resolve_feature_gates
from berth_host.config.gate_tables import KNOWN_GATES, KNOWN_GATES_1_36
from click.testing import CliRunner
from support.places import TESTS

FILES: Final = {
    "1.37": (KNOWN_GATES, "feature_gates_1_37.json"),
    "1.36": (KNOWN_GATES_1_36, "feature_gates.json"),
}
RECORDED: Final[dict[tuple[str, str], Any]] = {
    (version, line): answer
    for version, (_, file) in FILES.items()
    for line, answer in json.loads((TESTS / "host/config/golden" / file).read_text())["lines"].items()
}
"""By version and value of the flag; see tests/cluster/record_feature_gates.py."""
REFUSED: Final = [key for key, answer in RECORDED.items() if answer["said"]]
TAKEN: Final = [key for key, answer in RECORDED.items() if not answer["said"]]

_NEXT: Final = re.compile(r", (?=cannot set|unrecognized|\w+ is enabled)")


def reasons(said: str) -> list[str]:
    """kube-scheduler's reasons: several in brackets, in an order by chance; without Go's own part."""
    listed = said[1:-1] if said.startswith("[") else said
    return [text.split(", err: strconv")[0] for text in _NEXT.split(listed)]


@pytest.mark.parametrize(("version", "line"), REFUSED)
def test_gates_are_refused_with_the_reasons_and_exit_code_of_kube_scheduler(version: str, line: str) -> None:
    flags = ["--secure-port=0", f"--emulated-version={version}", f"--feature-gates={line}"]
    result = CliRunner().invoke(berth, ["scheduler", *flags])

    answer = RECORDED[version, line]
    assert result.exit_code == answer["exit"]
    for reason in reasons(answer["said"]):
        assert reason in result.stderr


@pytest.mark.parametrize(("version", "line"), TAKEN)
def test_gates_that_kube_scheduler_accepts_are_accepted(version: str, line: str) -> None:
    given = gate_values(parse([f"--feature-gates={line}"]).texts("feature-gates"))
    resolve_feature_gates(given, source="f", known=FILES[version][0])


def test_gate_may_have_the_component_prefix() -> None:
    flags = parse(["--feature-gates=kube:GenericWorkload=true,kube:GangScheduling=false"])
    assert gate_values(flags.texts("feature-gates")) == {"GenericWorkload": True, "GangScheduling": False}
