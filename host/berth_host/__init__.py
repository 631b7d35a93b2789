"""berth's host: owns the scheduling queue, the cluster cache and the cycle, and asks plugins.

This file has all that programs of others may import: `run`, which is a custom scheduler's own main(), the
scheduler as an object (`Host`), and the plugins of one profile without one (`FrameworkAlone`), with the
questions that both answer. The modules below it change from one release to the next.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from berth_host.app import (
        Drain,
        Fit,
        FrameworkAlone,
        Host,
        HostOptions,
        NodeTemplate,
        Refit,
        Simulate,
        TryGroup,
        WhatIf,
    )
    from berth_host.config.loading import default_configuration, load_configuration
    from berth_host.cycle.chooser import SmallestName
    from berth_host.errors.endpoints import QuestionError, UnknownObjectError
    from berth_host.errors.plugins import PluginLoadError
    from berth_host.model.clock import ManualClock
    from berth_host.questions.what_ifs import IncompleteNodeError

__all__ = [
    "Drain",
    "Fit",
    "FrameworkAlone",
    "Host",
    "HostOptions",
    "IncompleteNodeError",
    "ManualClock",
    "NodeTemplate",
    "PluginLoadError",
    "QuestionError",
    "Refit",
    "Simulate",
    "SmallestName",
    "TryGroup",
    "UnknownObjectError",
    "WhatIf",
    "default_configuration",
    "load_configuration",
    "run",
]
_HOMES: Final = {
    "IncompleteNodeError": "berth_host.questions.what_ifs",
    "ManualClock": "berth_host.model.clock",
    "PluginLoadError": "berth_host.errors.plugins",
    "QuestionError": "berth_host.errors.endpoints",
    "SmallestName": "berth_host.cycle.chooser",
    "UnknownObjectError": "berth_host.errors.endpoints",
    "default_configuration": "berth_host.config.loading",
    "load_configuration": "berth_host.config.loading",
}
"""The modules of what is not in `berth_host.app`."""


def __getattr__(name: str) -> object:
    """Import what is asked for, and nothing before: `run` starts in a tenth of the time of the others."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "berth_host.app")), name)


def run(plugins: Mapping[str, type] | None = None, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the `berth` command with more plugins, by name, and exit with its code.

    A configuration enables them like any other. `arguments`: those of the command, None: the process's.
    Exits with 2 for a name that a default or an installed plugin has already, and for a value that is no
    class.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if list(given[:1]) == ["scheduler"]:
        # Before the imports, which take a second: a signal that comes meanwhile must not end the scheduler.
        from berth_host.model.meaningless_signals import HEARD_LATER, MEANINGLESS, pass_over

        pass_over((*MEANINGLESS, *HEARD_LATER))
        # Imports leave hardly any garbage, and each collection visits all that was imported: without them the
        # start takes 15 % less. The command turns them on again.
        gc.disable()
    try:
        # Not at the top: plugins and tools import this package without wanting a command line, and gRPC's
        # settings must be there before gRPC is.
        from berth_sdk.runtime.standard_streams import prepare_streams

        prepare_streams()
        from berth_sdk.wire.grpc_core import poll_by_the_caller, write_errors_alone

        poll_by_the_caller()
        write_errors_alone()
        from berth_host.cli.main import run_command

        run_command(plugins or {}, arguments)
    except KeyboardInterrupt:
        interrupted("berth")


def interrupted(name: str) -> NoReturn:
    """End the program after a Ctrl-C that nobody has handled, such as one while modules are imported."""
    sys.stderr.write(f"{name}: interrupted\n")
    sys.exit(128 + signal.SIGINT)
