"""Every workload in a fresh process, so that no peak and no cache of one shows in another's figures.

The child is started anew (multiprocessing's "spawn": a fork would take the parent's memory along), gets the
workload as values and answers with a Result. It ends with its parent, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from multiprocessing.connection import Connection
from typing import Final

from berth_host import log
from berth_host.app import event_loop
from berth_host.app.registry import PluginLoadError
from berth_host.cli.bench.result import Result
from berth_host.cli.bench.running import Settings, WorkloadError, run
from berth_host.cli.bench.workload import Workload
from berth_host.config.errors import ConfigurationError

_ENDS_S: Final = 5.0


def run_in_child(workload: Workload, settings: Settings) -> Result:
    """Raises WorkloadError."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, workload, settings), daemon=True)
    try:
        child.start()
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise WorkloadError(f"{workload.name}: cannot be handed to its process: {err}") from err
    theirs.close()
    try:
        answer = mine.recv()
    except EOFError:
        child.join(_ENDS_S)
        text = f"{workload.name}: its process ended without a result (exit code {child.exitcode})"
        raise WorkloadError(text) from None
    finally:
        if child.is_alive():
            child.join(_ENDS_S)
        if child.is_alive():
            child.terminate()
        mine.close()
    if isinstance(answer, Result):
        return answer
    raise WorkloadError(str(answer))


def _end_with_parent() -> None:
    """Ours to see to: a parent that is killed cannot end its children."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="berth-bench-parent", daemon=True).start()


def _child(theirs: Connection, workload: Workload, settings: Settings) -> None:
    _end_with_parent()
    # The output of plugins is no part of the result.
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), 1)
    log.configure(log.EVERY_ATTEMPT if settings.verbose else "ERROR", for_people=True)
    try:
        theirs.send(event_loop.run(run(workload, settings)))
    except WorkloadError as err:
        theirs.send(str(err))
    except (ConfigurationError, PluginLoadError, OSError) as err:
        theirs.send(f"{workload.name}: {err}")
    except KeyboardInterrupt:
        pass  # the parent was told as well, and says so
    finally:
        theirs.close()
