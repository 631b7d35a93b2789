"""The console scripts `berth` (also `python -m berth_host`) and `berth-scheduler`."""

from __future__ import annotations

import sys
from typing import NoReturn

from berth_host import run


def main() -> NoReturn:
    """Run the command line; exits with its code."""
    run()


def scheduler() -> NoReturn:
    """`berth scheduler`, under a name that takes kube-scheduler's command line as it is."""
    run(arguments=["scheduler", *sys.argv[1:]])


if __name__ == "__main__":
    main()
