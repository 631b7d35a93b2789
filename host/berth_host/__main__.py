"""The console script `berth`, also `python -m berth_host`."""

from __future__ import annotations

from typing import NoReturn

from berth_host import run


def main() -> NoReturn:
    """Run the command line; exits with its code."""
    run()


if __name__ == "__main__":
    main()
