"""`berth-sdk conformance`: play the host against a plugin server, and name what breaks the contract."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from berth_sdk.json.bounded import NestedTooDeeplyError, read_bounded_json
from berth_sdk.yaml.encoding import read_text
from berth_sdk.yaml.scalars import YamlTextError

LEVELS: Final = ("core", "stateful", "binding", "group")
UNREACHABLE: Final = 3
MOST_TIMES: Final = 100
"""The largest --time-factor."""
RESTART_S: Final = 30.0
"""The time for the command that restarts the server."""
SAID: Final = 2000
"""The bytes of its output that an error quotes."""


def add_options(kit: ArgumentParser) -> None:
    """Add the options of the command."""
    kit.add_argument("endpoint", metavar="ENDPOINT", help="unix:PATH or HOST:PORT")
    kit.add_argument(
        "--level", choices=LEVELS, default=LEVELS[-1], help="the last level to run (default: group)"
    )
    kit.add_argument("--plugin", metavar="NAME", help="the plugin to ask; default: each plugin of the server")
    kit.add_argument("--args", metavar="JSON|FILE", help="the plugin's arguments; default: none")
    kit.add_argument(
        "--pod",
        metavar="YAML|FILE",
        help="a core/v1 Pod for the plugin to schedule, in YAML or JSON; default: a plain one",
    )
    kit.add_argument(
        "--credential-file", metavar="PATH", help="file with the secret that the plugin expects of its host"
    )
    kit.add_argument(
        "--restart",
        metavar="COMMAND",
        help="a command that restarts the server, which the kit runs in mid cycle; default: none",
    )
    kit.add_argument(
        "--time-factor",
        metavar="N",
        type=float,
        default=1.0,
        help="multiply every time that the kit waits by N, for a slow machine; deadlines too (default: 1)",
    )
    kit.add_argument("--json", action="store_true", help="print the results as JSON")
    kit.add_argument(
        "--junit",
        metavar="FILE",
        help="write the results to FILE, as JUnit's XML; a run without results writes its error",
    )


def conformance(options: Namespace) -> int:
    """Run the kit and print its results.

    Returns 0: all cases passed; 1: one failed, or none was run; 2: a wrong option; 3: no case can run,
    because the server cannot be reached or is none.
    """
    # Imported late: a help text needs no gRPC, and gRPC's settings must be made before gRPC is imported.
    from berth_sdk.cli.reflect import OptionError, connection
    from berth_sdk.conformance.handle_double import handle_double
    from berth_sdk.conformance.host import Target
    from berth_sdk.conformance.run import UnreachableError

    try:
        _begin_junit(options.junit)
    except _OptionError as err:
        return _said(str(err), 2)
    try:
        credentials, more = connection(options)
        pod, manifest = _pod(options.pod)
        args = _arguments(options.args)
        credential = ""
        if options.credential_file is not None:
            credential = _credential(options.credential_file)
        if not 0 < options.time_factor <= MOST_TIMES:
            raise _OptionError(
                f"--time-factor {options.time_factor:g}: write a number above 0, up to {MOST_TIMES}"
            )
        restart = _restart(options.restart, options.time_factor)
    except (OptionError, _OptionError, OSError, UnicodeDecodeError) as err:
        return _ended(options, str(err), 2)
    with handle_double() as double:
        target = Target(
            options.endpoint,
            credentials,
            more,
            args,
            pod,
            manifest,
            double,
            credential,
            restart,
            options.time_factor,
        )
        try:
            return _reported(options, target)
        except _OptionError as err:
            return _ended(options, str(err), 2)
        except UnreachableError as err:
            return _ended(options, str(err), UNREACHABLE)


def _reported(options: Namespace, target: Any) -> int:
    """Run the cases of the chosen plugins, and print and write the results."""
    from berth_sdk.conformance import report, run

    found = run.subjects(run.hello_of(target))
    names = [subject.plugin.name for subject in found]
    if options.plugin is not None:
        if options.plugin not in names:
            raise _OptionError(f"the server has no plugin {options.plugin!r}; it has {', '.join(names)}")
        found = [subject for subject in found if subject.plugin.name == options.plugin]
    if len(found) > 1 and target.args is not None:
        raise _OptionError(f"--args are those of one plugin: choose it with --plugin ({', '.join(names)})")
    reports = []
    for subject in found:
        told = (
            (lambda _result: None)
            if options.json
            else (lambda result: print(report.line(result), flush=True))
        )
        declared = run.configured(target, subject)
        if declared.refused:
            reports.append(run.refused(target, declared))
            if not options.json:
                print(report.refused_arguments(reports[-1]), flush=True)
            continue
        reports.append(run.run(target, declared, run.chosen(declared, options.level), told))
        if not options.json:
            print(report.verdict(reports[-1]), flush=True)
    if options.json:
        documents = [report.document(one) for one in reports]
        print(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
    if options.junit:
        _write(options.junit, report.junit(reports))
    return 0 if all(one.conforms for one in reports) else 1


class _OptionError(Exception):
    """An error in the options, with what to do."""


def _said(text: str, code: int) -> int:
    from berth_sdk.conformance.report import shown

    print(f"berth-sdk conformance: {shown(text)}", file=sys.stderr)
    return code


def _ended(options: Namespace, text: str, code: int) -> int:
    """Say why no case was run, also in the file of --junit; return the exit code."""
    from berth_sdk.conformance import report

    if options.junit:
        try:
            _write(options.junit, report.junit_of_error(text))
        except _OptionError as err:
            if str(err) != text:
                _said(str(err), code)
    return _said(text, code)


def _begin_junit(file: str | None) -> None:
    """Replace what an earlier run wrote: a run that is killed leaves an error. Raises _OptionError."""
    from berth_sdk.conformance import report

    if file is None:
        return
    path = Path(file)
    if path.is_dir():
        raise _OptionError(f"--junit {file}: this is a folder: add the name of a file")
    if not path.absolute().parent.is_dir():
        raise _OptionError(f"--junit {file}: there is no such folder: make it first")
    if path.is_file() or not path.exists():  # not a pipe, which takes one document
        _write(file, report.junit_of_error("the kit did not end: it was stopped before its last case"))


def _write(file: str, content: bytes) -> None:
    """Write the file of --junit. Raises _OptionError."""
    try:
        Path(file).write_bytes(content)
    except OSError as err:
        raise _OptionError(f"--junit {file}: {err.strerror}: choose another file") from err


def _restart(command: str | None, time_factor: float) -> Callable[[], None] | None:
    """Return what restarts the server; None without a command. Raises _OptionError."""
    from berth_sdk.conformance.host import RestartError

    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError as err:
        raise _OptionError(f"--restart {command}: {err}: write the command as for a shell") from err
    if not words or shutil.which(words[0]) is None:
        raise _OptionError(f"--restart {command}: there is no such command: write one that is on PATH")

    def run() -> None:
        # Not a pipe: a server that the command leaves behind would hold its other end open.
        with tempfile.TemporaryFile() as output:
            limit_s = RESTART_S * time_factor
            try:
                done = subprocess.run(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=limit_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as err:
                raise RestartError(
                    f"{command} did not end in {limit_s:g} s: it must leave the new server running in the"
                    " background, and end"
                ) from err
            except OSError as err:
                raise RestartError(str(err)) from err
            if done.returncode:
                output.seek(0)
                said = output.read(SAID).decode(errors="replace").strip() or "it printed nothing"
                raise RestartError(f"{command} ended with exit code {done.returncode}: {said}")

    return run


def _credential(file: str) -> str:
    """Return the secret of --credential-file. Raises _OptionError."""
    try:
        found = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "this is no text"
        raise _OptionError(f"--credential-file {file}: {reason}: name the file with the secret") from err
    if not found:
        raise _OptionError(f"--credential-file {file}: the file is empty: write the secret into it")
    return found


def _object(option: str, value: str | None) -> dict[str, Any] | None:
    """Return the object of an option, written there or in a file: JSON, of --pod YAML too.

    Raises _OptionError.
    """
    if value is None:
        return None
    kind = "a manifest" if option == "--pod" else "a JSON object"
    text, named = value, option
    if not value.strip():
        raise _OptionError(f"{option} is empty: write {kind} or the path of a file")
    is_text = value.lstrip().startswith("{") or (option == "--pod" and "\n" in value.strip())
    if not is_text:
        named = f"{option} {value}"
        try:
            text = read_text(Path(value))
        except OSError as err:
            raise _OptionError(f"{named}: {err.strerror}: write {kind} or the path of a file") from err
        except UnicodeDecodeError as err:
            raise _OptionError(f"{named}: {err}: write {kind} or the path of a file") from err
    try:
        found = read_bounded_json(text, parse_constant=_no_constant)
    except NestedTooDeeplyError as err:
        raise _OptionError(f"{named}: {err}") from err
    except ValueError as err:
        if option != "--pod":
            raise _OptionError(f"{named}: this is not JSON ({err}): write JSON, not YAML") from err
        found = _yaml(named, text)
    if not isinstance(found, dict):
        raise _OptionError(f"{named}: write {kind}, not {type(found).__name__}")
    return found


def _yaml(named: str, text: str) -> Any:
    """Return the one document of a manifest in YAML. Raises _OptionError."""
    try:
        from berth_sdk.yaml.reader import read_values
    except ImportError as err:
        raise _OptionError(
            f"{named}: this is YAML, which needs PyYAML: install berth-sdk[yaml], or write JSON, as"
            " `kubectl create --dry-run=client -o json -f FILE` prints it"
        ) from err
    try:
        documents = [one for one, _ in read_values(text) if one is not None]
    except YamlTextError as err:
        said = err.message if err.line is None else f"line {err.line}: {err.message}"
        raise _OptionError(f"{named}: this is no manifest in YAML or JSON ({said})") from err
    if len(documents) != 1:
        raise _OptionError(f"{named}: there are {len(documents)} documents: write one core/v1 Pod")
    return documents[0]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _arguments(value: str | None) -> dict[str, Any] | None:
    """Return the arguments of --args. Raises _OptionError, also for JSON that no message can bring."""
    from google.protobuf.message import DecodeError
    from google.protobuf.struct_pb2 import Struct

    from berth_sdk.plugin.v1 import identity_pb2 as identity

    found = _object("--args", value)
    try:
        sent = Struct()
        sent.update(found or {})
        request = identity.ConfigureRequest(plugins=[identity.PluginArgs(args=sent)])
        identity.ConfigureRequest.FromString(request.SerializeToString())
    except (DecodeError, RecursionError) as err:
        raise _OptionError(
            "--args: the values are nested too deeply: a message of protobuf holds about 30 levels"
        ) from err
    except (ValueError, OverflowError) as err:
        raise _OptionError(f"--args: {err}: the contract brings arguments as google.protobuf.Struct") from err
    return found


def _pod(value: str | None) -> tuple[Any, str]:
    """Return the pod of --pod as a summary and as JSON; (None, "") without one. Raises _OptionError."""
    from berth_sdk.errors import BerthError
    from berth_sdk.kube_object import KubeObject
    from berth_sdk.pod import Pod
    from berth_sdk.wire.records import encode_pod

    manifest = _object("--pod", value)
    if manifest is None:
        return None, ""
    if (kind := manifest.get("kind", "Pod")) != "Pod":
        raise _OptionError(f"--pod: this is a {kind}: write a core/v1 Pod")
    try:
        return encode_pod(Pod.from_object(KubeObject.of(manifest))), json.dumps(manifest)
    except (BerthError, KeyError, TypeError, ValueError) as err:
        raise _OptionError(f"--pod: this is no core/v1 Pod: {err}") from err
