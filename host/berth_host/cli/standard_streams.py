"""`hold_closed`: standard streams that are closed (`>&-`) lead nowhere, and no file takes their place.

Called before anything else is opened. The next file or socket would otherwise get the number 0, 1 or 2: what
is printed would go there, and libuv ends the process when it closes such a one.
"""

from __future__ import annotations

import os
import sys


def hold_closed() -> None:
    """Point the numbers of closed streams at /dev/null. What is printed there is lost, as was asked for.

    A closed standard input stays None in `sys`: to read from it is an error that names the cause.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is what `open` answers, and those below are taken by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
