"""A log for people has a child's output as plain lines; the host's own events keep their form."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from berth_host import log
logger = log.get_logger()
log.configure("INFO", sys.argv[1], for_people=sys.argv[2] == "people")
logger.info("plugin.logged", plugin="Demo", line="reading {prices}")
logger.warning("plugin.log_dropped", plugin="Demo", lines=1234)
try:
    raise KeyError("x")
except KeyError:
    logger.warning("plugin.call_failed", plugin="Demo", exc_info=True)
"""


def written(form: str, reader: str) -> list[str]:
    """Return the log of a subprocess, because the configuration is global."""
    command = [sys.executable, "-c", PROGRAM, form, reader]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


@pytest.mark.parametrize(("form", "reader"), [("text", "machines"), ("json", "people"), ("text", "people")])
def test_people_get_lines_with_the_plugins_name(form: str, reader: str) -> None:
    lines = written(form, reader)
    assert lines[:2] == ["Demo: reading {prices}", "Demo: ... 1234 lines left out"]
    assert "plugin.call_failed" in lines[2]
    assert lines[2].startswith("{") is (form == "json")
    assert lines[3] == "Demo: Traceback (most recent call last):"
    assert lines[-1] == "Demo: KeyError: 'x'"


def test_machines_get_json_alone() -> None:
    events = [json.loads(line) for line in written("json", "machines")]
    assert [event["event"] for event in events] == [
        "plugin.logged",
        "plugin.log_dropped",
        "plugin.call_failed",
    ]
    assert (events[0]["line"], events[1]["lines"]) == ("reading {prices}", 1234)
    assert events[2]["exception"].startswith("Traceback")
