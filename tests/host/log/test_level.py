"""The level can be changed while loggers are in use. Runs in a subprocess, as the configuration is global."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
from berth_host import log
logger = log.get_logger()
log.configure("INFO", "json")
for level in ("INFO", "DEBUG", "INFO"):
    log.change_level(level)
    logger.debug("pod.dropped", at=level)
    logger.info("pod.bound", at=level)
"""


def test_a_logger_in_use_follows_the_level() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["event"], line["at"]) for line in lines] == [
        ("pod.bound", "INFO"),
        ("pod.dropped", "DEBUG"),
        ("pod.bound", "DEBUG"),
        ("pod.bound", "INFO"),
    ]
