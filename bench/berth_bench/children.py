"""Run every workload in a fresh process, so that memory and caches of one do not affect another's figures.

The child is started anew (multiprocessing's "spawn", because a fork would inherit the parent's memory), gets
the work as values and sends its result. It ends with its parent, however the parent ends. Turns of `faults`
run in the same way.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from berth_host import log
from berth_host.config.errors import ConfigurationError
from berth_host.errors.plugins import PluginLoadError
from berth_host.process import event_loop

from berth_bench.result import Result
from berth_bench.running import Settings, WorkloadError, run
from berth_bench.workload import Workload

R = TypeVar("R")
_ENDS_S: Final = 5.0


def run_in_child(workload: Workload, settings: Settings) -> Result:
    """Run a workload in a process of its own and return its result. Raises WorkloadError."""
    return in_child(workload.name, partial(run, workload, settings), verbose=settings.verbose)


def in_child(
    title: str,
    work: Callable[[], Coroutine[Any, Any, R]],
    *,
    verbose: bool = False,
    on_uvloop: bool = True,
    within_s: float | None = None,
) -> R:
    """Run `work` in a process of its own and return its result. `title`: its name in errors. `on_uvloop`
    False: on asyncio's own loop. `within_s`: the seconds that the work may take; None: any.

    Raises WorkloadError if the work fails or the process ends without a result, and TimeoutError after
    `within_s`, when the process is killed.
    """
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, title, work, verbose, on_uvloop), daemon=True)
    try:
        child.start()
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise WorkloadError(f"{title}: cannot be sent to its process: {err}") from err
    theirs.close()
    try:
        if not mine.poll(within_s):
            child.kill()
            raise TimeoutError(f"{title}: no result within {within_s:g} s")
        result, problem = mine.recv()
    except EOFError:
        child.join(_ENDS_S)
        text = f"{title}: its process ended without a result (exit code {child.exitcode})"
        raise WorkloadError(text) from None
    finally:
        if child.is_alive():
            child.join(_ENDS_S)
        if child.is_alive():
            child.terminate()
        mine.close()
    if problem is not None:
        raise problem
    done: R = result
    return done


def _end_with_parent() -> None:
    """End this process when its parent ends: a parent that is killed cannot end its children."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="berth-bench-parent", daemon=True).start()


def _child(
    theirs: Connection,
    title: str,
    work: Callable[[], Coroutine[Any, Any, Any]],
    verbose: bool,
    on_uvloop: bool,
) -> None:
    """Run the work and send (the result, None), or (None, the error)."""
    _end_with_parent()
    # The output of plugins is not part of the result.
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), 1)
    log.configure(log.EVERY_ATTEMPT if verbose else "ERROR", for_people=True)
    try:
        theirs.send((event_loop.run(work(), on_uvloop=on_uvloop), None))
    except WorkloadError as err:
        theirs.send((None, err))
    except (ConfigurationError, PluginLoadError, OSError) as err:
        theirs.send((None, WorkloadError(f"{title}: {err}")))
    except KeyboardInterrupt:
        pass  # the parent receives the signal too, and reports it
    finally:
        theirs.close()
