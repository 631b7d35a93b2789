"""Replay recorded exchanges of kube-scheduler with HTTP extenders, and compare them, on a real API server.

    python tests/cluster/replay_extender.py [--scheduler berth|kube-scheduler] [--emulated-version VERSION]
        [--scenario NAME]... [--servers N] DIR

Reads every `.jsonl` (or `.jsonl.gz`) of DIR. Every scenario starts from an empty cluster, a new scheduler
process and a new extender, which answers as recorded. Prints one JSON line for each scenario when it ends,
with its first difference, then the total. Exits 0 only if all are identical: the same calls to the extender
with the same headers and bodies, the same pods with the same conditions, the same Events, the same writes.
`other_retries` marks scenarios that differ only in the number of attempts, which the recordings leave open.
A run with kube-scheduler shows that kube-scheduler matches its own recording.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.observed.extender_trial import extender_trial
from support.observed.replaying import main

if __name__ == "__main__":
    sys.exit(main(None, extender_trial))
