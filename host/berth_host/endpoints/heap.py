"""The page `/debug/pprof/heap`: what the process keeps in memory, by counts.

Go's page of that name samples allocations; Python has no such sampler that costs nothing. The counts show
whether something grows: after a full collection (`gc=1`, as in Go) they do not depend on the allocator.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import Counter
from typing import Final

# In the order of the C structure. `uordblks`: the bytes in use; `hblkhd`: those of areas of their own.
_MALLINFO: Final = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _MallInfo(ctypes.Structure):
    """The answer of glibc's mallinfo2(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


def heap_text(collect: bool) -> str:
    """Return a line for each figure, a name and a count: the total of objects, frozen objects, blocks and
    bytes, then the objects of each type, most frequent first.

    `collect`: run a full collection first, which stops the event loop for up to 0.5 s.
    """
    if collect:
        gc.collect()
    types = Counter(map(type, gc.get_objects()))
    named: Counter[str] = Counter()
    for kind, count in types.items():
        named[f"{kind.__module__}.{kind.__qualname__}"] += count
    frozen = gc.get_freeze_count()
    lines = [
        f"objects {types.total() + frozen}",
        f"frozen {frozen}",
        f"blocks {sys.getallocatedblocks()}",
        f"malloced_bytes {malloced_bytes()}",
        *(f"{name} {count}" for name, count in named.most_common()),
    ]
    return "\n".join(lines) + "\n"


def malloced_bytes() -> int:
    """Return the bytes in use that the C library gave out: buffers of more than 512 bytes, arrays, and those
    of extensions; 0 where the C library does not say (it is not glibc 2.33 or newer).
    """
    ask = _mallinfo()
    if ask is None:
        return 0
    found = ask()
    return int(found.uordblks + found.hblkhd)


def _mallinfo() -> ctypes._NamedFuncPointer | None:
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    ask.restype = _MallInfo
    return ask
