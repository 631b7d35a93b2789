"""`berth-sdk check`: what a host would think of plugin classes, without a server and without a host."""

from __future__ import annotations

import inspect
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from berth_sdk.cli.loading import load_plugins
from berth_sdk.errors import BerthError, PluginArgsError
from berth_sdk.extension_points import METHODS, ExtensionPoint
from berth_sdk.json.bounded import NestedTooDeeplyError, read_bounded_json
from berth_sdk.kept.follows import BY_ROW
from berth_sdk.needs import NeedKind
from berth_sdk.runtime.descriptor import Descriptor, describe
from berth_sdk.runtime.raised import author_traceback, place_of, raised_text
from berth_sdk.scope import scope_text
from berth_sdk.testing.host import PluginHost

_FAILED: Final = 1
_BAD_INPUT: Final = 2


def check(options: Namespace) -> int:
    """Print what the classes declare. Returns 0; 1: a host would refuse one; 2: wrong input."""
    try:
        args = _arguments(options.args)
    except ValueError as err:
        print(f"berth-sdk check: --args: {err}", file=sys.stderr)
        return _BAD_INPUT
    failed = False
    for number, name in enumerate(options.names):
        if number:
            print()
        try:
            ((title, cls),) = load_plugins([name]).items()
            failed |= not _is_accepted(title, cls, args)
        except BerthError as err:
            failed = True
            if err.__cause__ is not None:
                print(author_traceback(err.__cause__), end="", file=sys.stderr)
            text = str(err)
            print(f"berth-sdk check: {text if text.startswith(name) else f'{name}: {text}'}", file=sys.stderr)
        except (Exception, SystemExit) as err:
            if not place_of(err):
                raise  # no line of the plugin's code: an internal error
            failed = True
            print(author_traceback(err), end="", file=sys.stderr)
            print(f"berth-sdk check: {name} cannot be made: {raised_text(err)}", file=sys.stderr)
    return _FAILED if failed else 0


def _is_accepted(title: str, cls: type, args: Mapping[str, Any]) -> bool:
    """Print what the plugin declares with these arguments; of a plugin that cannot be made, what its class
    declares. Returns False for arguments that the plugin refuses. Raises the other errors of its `__init__`.
    """
    descriptor, outcome, accepts = describe(cls, title), "", True
    try:
        host = PluginHost(cls, args)
        descriptor = replace(host.runtime.descriptor, name=title)
        outcome = f"arguments: accepts {json.dumps(args)}{_trouble_at_close(host)}"
    except PluginArgsError as err:
        outcome, accepts = f"arguments: refuses {json.dumps(args)}: {err}", False
    finally:
        for line in _lines(cls, descriptor):
            print(line)
    print(outcome)
    return accepts


def _trouble_at_close(host: PluginHost) -> str:
    """Close the plugin, and return a remark if its `close` raises, which a host only logs."""
    try:
        host.close()
    except Exception as err:  # noqa: BLE001  # a plugin may raise anything
        return f"\nremark: close raised {raised_text(err)}"
    return ""


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments: JSON, or the name of a file with JSON. Raises ValueError."""
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text("utf-8")
        except (OSError, ValueError) as err:
            said = err.strerror if isinstance(err, OSError) else err
            raise ValueError(
                f"{text!r} is neither a JSON object nor a file that can be read: {said}"
            ) from err
    try:
        args = read_bounded_json(text, parse_constant=_no_constant)
    except NestedTooDeeplyError:
        raise
    except ValueError as err:
        raise ValueError(f"not JSON: {err}") from err
    if not isinstance(args, dict):
        raise ValueError(f"a JSON object is needed, not {text[:40]!r}")
    return args


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _lines(cls: type, descriptor: Descriptor) -> Iterator[str]:
    yield f"{descriptor.name} {descriptor.version}".rstrip()
    for point in descriptor.points:
        for method in METHODS[point]:
            function = getattr(cls, method, None)
            if callable(function):
                kind = "async def" if inspect.iscoroutinefunction(function) else "def"
                parameters = ", ".join(inspect.signature(function).parameters)
                yield f"  {point.config_name:<20} {kind} {method}({parameters})"
    for name, value in _declared(descriptor).items():
        yield f"{name}: {value}"
    for remark in _remarks(descriptor):
        yield f"remark: {remark}"


def _declared(descriptor: Descriptor) -> Mapping[str, str]:
    """Return what the host is told, in the words of the class."""
    needs = [
        need.kind.name.lower() + (f" {need.resource}" if need.resource else "") for need in descriptor.needs
    ]
    events = descriptor.events
    shown = {
        "node_mode": descriptor.node_mode.name,
        "needs": ", ".join(needs) or "nothing but the pod's summary",
        "pod_sensitivity": descriptor.pod_sensitivity.name,
        "events": "any event"
        if events is None
        else "; ".join(f"{one.resource} {' '.join(one.actions) or 'any change'}" for one in events) or "none",
        "scope": scope_text(descriptor.scope),
        "depends_on": "not declared" if descriptor.depends_on is None else descriptor.depends_on.name,
    }
    if descriptor.has(ExtensionPoint.SCORE):
        shown["normalization"] = descriptor.normalization.name
    if descriptor.deadlines:
        shown["deadlines"] = ", ".join(
            f"{point} {seconds:g}s" for point, seconds in descriptor.deadlines.items()
        )
    if descriptor.accounts:
        shown["accounts"] = ", ".join(sorted(one.name for one in descriptor.accounts))
    if descriptor.handle_required:
        shown["handle"] = "required: a host that cannot offer HandleService refuses the plugin"
    return shown


def _remarks(descriptor: Descriptor) -> Iterator[str]:
    """Yield what works and costs more than it must."""
    judges = descriptor.has(ExtensionPoint.FILTER) or descriptor.has(ExtensionPoint.SCORE)
    if descriptor.less_only:
        yield "only an in-process plugin may have `less` alone; write `sort_key` to serve the class"
    if judges and descriptor.depends_on is None:
        yield "without `depends_on` the host asks about every node for every pod: declare it"
    elif descriptor.depends_on in BY_ROW and not descriptor.host_keeps_answers:
        yield "with `sign` each pod costs a served plugin a call; `sign_fields` saves it"
    if descriptor.has(ExtensionPoint.FILTER) and descriptor.events is None:
        yield "without `events` every change in the cluster requeues the rejected pods"
    if any(need.kind in (NeedKind.POD_OBJECT, NeedKind.NODE_OBJECT) for need in descriptor.needs):
        yield "whole objects are large: a summary costs a tenth"
