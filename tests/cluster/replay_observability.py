"""Replay recorded scenarios of kube-scheduler against a real API server, and compare what users observe.

    python tests/cluster/replay_observability.py [--scheduler berth|kube-scheduler]
        [--emulated-version VERSION] [--scenario NAME]... [--servers N] DIR

Reads `events.jsonl` (or `.jsonl.gz`) of DIR. Every scenario starts from an empty cluster and a new scheduler
process. Prints one JSON line for each scenario when it ends, with its first difference, then the total. Exits
0 only if all are identical: the same pods with the same conditions, the same Events, the same writes with the
same bodies. `other_retries` marks scenarios that differ only in the number of attempts, which the recordings
leave open. With kube-scheduler, scenarios that need a plugin of their own are left out; such a run shows that
kube-scheduler matches its own recording.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

from support.observed.replaying import main
from support.observed.trial import observability_trial

FILES: Final = "events*"

if __name__ == "__main__":
    sys.exit(main(None, observability_trial, FILES))
