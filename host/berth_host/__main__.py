"""The console scripts `berth` (also `python -m berth_host`), `berth-scheduler` and `kubectl-berth`."""

from __future__ import annotations

import sys
from typing import NoReturn

from berth_host import interrupted, run


def main() -> NoReturn:
    """Run the command line; exits with its code."""
    run()


def scheduler() -> NoReturn:
    """`berth scheduler`, under a name that takes kube-scheduler's command line as it is."""
    run(arguments=["scheduler", *sys.argv[1:]])


def kubectl() -> NoReturn:
    """Run `kubectl berth`. kubectl calls `kubectl-berth` with the arguments after `berth`."""
    try:
        # Not at the top, where gRPC would come with it, before `run` has set how it waits.
        from berth_sdk.runtime.standard_streams import prepare_streams

        prepare_streams()
        from berth_host.cli.kubectl.command import kubectl_berth
        from berth_host.cli.main import run_group

        run_group(kubectl_berth, "kubectl berth")
    except KeyboardInterrupt:
        interrupted("kubectl berth")


if __name__ == "__main__":
    main()
