"""Draw mutants of the host, and run lives with each until one breaks a law.

    python tests/bench/life/mutants.py --list             # all forty, and what each breaks
    python tests/bench/life/mutants.py --seed 7           # ten that the seed draws
    python tests/bench/life/mutants.py --draw 4           # four that the commit draws
    python tests/bench/life/mutants.py --all --lives 200

Prints a line for each mutant: the seed of the first life that broke a law, and the law. Exits 1 if a mutant
was not found within `--lives`. Without `--seed`, the commit draws: the same commit draws the same mutants.
`support.life_mutants` has the mutants.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(next(folder for folder in Path(__file__).parents if folder.name == "tests")))

import pytest
from berth_bench.life.life import Result, live
from berth_host import log
from support.life_mutants import ALL, KNOWN, LifeMutant

DRAWN: Final = 10
DAYS: Final = 0.01
LIVES: Final = 2000


def drawn(seed: int, count: int = DRAWN) -> dict[str, LifeMutant]:
    """Return so many mutants of all, in the order of the table; the same for the same seed."""
    chosen = set(random.Random(seed).sample(list(ALL), count))
    return {name: mutant for name, mutant in ALL.items() if name in chosen}


def seed_of_commit() -> int:
    """Return a seed that follows from the commit that is checked out; 0 where there is no repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found.stdout.strip()[:8], 16)


def first_broken(mutant: LifeMutant, lives: int, days: float = DAYS) -> Result | None:
    """Run lives of the seeds 0, 1, ... with the mutant in place; return the first that breaks a law.

    None: no life did.
    """
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        for seed in range(lives):
            result = live(seed, days, keeps_trace=False)
            if result.broken:
                return result
    return None


def run(mutants: Mapping[str, LifeMutant], lives: int) -> int:
    """Print a line for each mutant; return how many were found."""
    missed = 0
    for name, mutant in mutants.items():
        began_s = time.process_time()
        found = first_broken(mutant, lives)
        missed += found is None
        where = f"none of {lives}" if found is None else f"seed {found.seed}"
        law = "" if found is None else found.law
        print(f"{name:45} {where:14} {time.process_time() - began_s:6.1f} s  {law[:100]}", flush=True)
    print(f"{len(mutants)} mutants, {len(mutants) - missed} found")
    return len(mutants) - missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, and do what they say; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    parser.add_argument("--all", action="store_true", help="try all mutants")
    parser.add_argument("--draw", type=int, default=DRAWN, help=f"how many mutants to draw [{DRAWN}]")
    parser.add_argument("--seed", type=int, help="draws the mutants to try [that of the commit]")
    parser.add_argument("--lives", type=int, default=LIVES, help=f"lives for each mutant, at most [{LIVES}]")
    options = parser.parse_args(arguments)
    if options.list:
        for name, mutant in ALL.items():
            kind = "known" if name in KNOWN else "new"
            print(f"{kind:6} {name:45} {mutant.__doc__}")
        return 0
    # What the mutants make the host log is no news here.
    log.configure("CRITICAL", for_people=True)
    tried = ALL
    if not options.all:
        seed = seed_of_commit() if options.seed is None else options.seed
        print(f"seed {seed} draws {options.draw} of {len(ALL)} mutants")
        tried = drawn(seed, options.draw)
    return 0 if run(tried, options.lives) == len(tried) else 1


if __name__ == "__main__":
    sys.exit(main())
