"""One command line of berth's programs with input that is spoilt somewhere, from a seed; and its run.

    shot = any_shot(random.Random(seed))
    ended = fire(shot)

Files are made in the working folder, by `prepare` and by each shot. Nothing is started: what a good command
line would start is refused at the end of its words, or has no server to reach.
"""

from __future__ import annotations

import io
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import yaml
from berth_host.cli.commands import Commands
from berth_host.cli.kubectl.command import kubectl_berth
from berth_host.cli.main import berth
from berth_sdk.__main__ import main as berth_sdk
from support import input_samples as samples
from support.spoilt_input import WHOLE, WORDS, spoilt

LIMIT_S: Final = 60
"""No command may take longer."""
ODD_PATHS: Final = (
    "folder",
    "loop",
    "dangling",
    "good.yaml/x",
    "socket",
    "n" * 300,
    "bad\udcff.yaml",
    *WORDS,
)
_SPOILT: Final = "spoilt"


@dataclass(frozen=True, slots=True)
class Shot:
    """A command line. `files`: written before; `stdin`: what is there to read."""

    program: str
    words: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: object
    out: str
    err: str


class TookTooLong(BaseException):
    """The command did not end within LIMIT_S."""


def prepare() -> None:
    """Make the good files, and the odd ones, in the working folder."""
    Path("good.yaml").write_text(yaml.safe_dump_all(samples.MANIFESTS[2]))
    Path("config.yaml").write_text(yaml.safe_dump_all((samples.SCHEDULER, samples.BERTH)))
    Path("fuzzed.py").write_text(samples.MODULES[0])
    Path("pod.yaml").write_text(yaml.safe_dump(samples.POD))
    Path("policy.json").write_text(yaml.safe_dump(samples.POLICY))
    Path("kubeconfig").write_text(yaml.safe_dump(samples.KUBECONFIG))
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("no such file")
    os.mkfifo("pipe")
    with suppress(OSError):
        Path("bad\udcff.yaml").write_text("kind: [")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    trace = Path("trace")
    trace.mkdir()
    for name, text in samples.TRACE.items():
        (trace / name).write_text(text)


def any_shot(rng: random.Random) -> Shot:
    """Return a command line with spoilt input."""
    makers: Sequence[Callable[[random.Random], Shot]] = (
        *(_manifests,) * 4,
        *(_configuration,) * 4,
        *(_simulated_configuration,) * 2,
        _policy,
        _kubeconfig,
        _kubeconfig,
        _cases,
        _trace,
        _plugin,
        _odd_path,
        *(_odd_words,) * 3,
    )
    return rng.choice(makers)(rng)


def fire(shot: Shot) -> Ended:
    """Run the command in this process, on streams like those of a process of its own.

    An exception that is no exit passes.
    """
    for name, content in shot.files.items():
        Path(name).write_bytes(content)
    return _run(PROGRAMS[shot.program], shot.words, shot.stdin)


def _manifests(rng: random.Random) -> Shot:
    text = spoilt(rng.choice(samples.MANIFESTS), rng)
    words = rng.choice(
        (("simulate",), ("why", "everything"), ("simulate", "-o", "json", "--costs", "--strict"))
    )
    if rng.random() < 0.2:
        return Shot("berth", (*words, "-f", "-"), stdin=text)
    return Shot("berth", (*words, _SPOILT), {_SPOILT: text})


def _configuration(rng: random.Random) -> Shot:
    text = spoilt(rng.choice(samples.CONFIGURATIONS), rng)
    words = rng.choice(
        (
            ("check-config", _SPOILT),
            ("check-config", _SPOILT, "-o", "json"),
            ("check-config", _SPOILT, "-o", "yaml", "--no-convert"),
            ("migrate", _SPOILT),
            ("migrate", _SPOILT, "-o", "migrated", "--force", "--report", "json"),
            ("migrate", "config.yaml", "--berth-config", _SPOILT),
            ("scheduler", "--config", _SPOILT, "--write-config-to", "written"),
            ("scheduler", f"--config={_SPOILT}", "--v=5"),
        )
    )
    return Shot("berth", words, {_SPOILT: text})


def _simulated_configuration(rng: random.Random) -> Shot:
    text = spoilt((samples.SCHEDULER, samples.BERTH), rng, spoils=1)
    return Shot("berth", ("simulate", "good.yaml", "--config", _SPOILT), {_SPOILT: text})


def _policy(rng: random.Random) -> Shot:
    text = spoilt((samples.POLICY,), rng)
    config = yaml.safe_dump(samples.BY_POLICY).replace("policy.json", _SPOILT).encode()
    command = rng.choice(("check-config", "migrate"))
    return Shot("berth", (command, "by-policy"), {_SPOILT: text, "by-policy": config})


def _kubeconfig(rng: random.Random) -> Shot:
    text = spoilt((samples.KUBECONFIG,), rng)
    program, words = rng.choice(
        (
            ("kubectl-berth", ("why", "p", "--kubeconfig", _SPOILT)),
            ("kubectl-berth", ("plugins", "--kubeconfig", f"{_SPOILT}:kubeconfig")),
            ("kubectl-berth", ("plugins", "--kubeconfig", _SPOILT, "--context", "c")),
            ("berth", ("plugins", "--server", "https://127.0.0.1:1", "--kubeconfig", _SPOILT)),
        )
    )
    return Shot(program, words, {_SPOILT: text})


def _cases(rng: random.Random) -> Shot:
    files = {_SPOILT: spoilt((samples.CASES,), rng), "pod.yaml": spoilt((samples.POD,), rng, spoils=1)}
    return Shot("berth", ("bench", "scheduler-perf", _SPOILT), files)


def _trace(rng: random.Random) -> Shot:
    files = {}
    for name, text in samples.TRACE.items():
        raw = text.encode()
        at = rng.randrange(len(raw))
        odd = rng.choice(
            (b"", b"\xff", b"\x00", b'"', b",", b"-", b"x" * 200_000, b"9" * 30, rng.choice(WHOLE))
        )
        files[f"trace/{name}"] = raw[:at] + odd + raw[at + rng.randint(0, 3) :]
    return Shot("berth", ("bench", "openb", "--data", "trace"), files)


def _plugin(rng: random.Random) -> Shot:
    """Return a module of a stranger, under a name of its own: Python imports a module once."""
    name = f"stranger{rng.randrange(10**9)}"
    source = rng.choice(samples.MODULES)
    if rng.random() < 0.2:
        at = rng.randrange(len(source))
        source = source[:at] + rng.choice(("\x00", "(", "\udcff", "5", "")) + source[at + 1 :]
    files = {f"{name}.py": source.encode("utf-8", "surrogateescape")}
    where = rng.choice((f"{name}:Mine", f"{name}:Mine", name, f"{name}:", f"{name}:Mine.x", f".{name}:Mine"))
    if rng.random() < 0.3:
        return Shot("berth-sdk", ("serve", where, "--listen", "unix:/no/such/folder/x"), files)
    plugin = {"name": "Mine", "inProcess": where}
    files["config"] = yaml.safe_dump_all((samples.SCHEDULER, samples.BERTH | {"plugins": [plugin]})).encode()
    words = rng.choice((("check-config", "config"), ("simulate", "good.yaml", "--config", "config", "-v")))
    return Shot("berth", words, files)


def _odd_path(rng: random.Random) -> Shot:
    path = rng.choice(ODD_PATHS)
    program, words = rng.choice(
        (
            ("berth", ("simulate", "-f", path)),
            ("berth", ("why", "x", path)),
            ("berth", ("simulate", "good.yaml", "--config", path)),
            ("berth", ("check-config", path)),
            ("berth", ("scheduler", f"--config={path}")),
            ("berth", ("scheduler", f"--kubeconfig={path}")),
            ("berth", ("scheduler", f"--client-ca-file={path}", "--kubeconfig=no")),
            ("berth", ("scheduler", f"--write-config-to={path}/x")),
            ("berth", ("plugins", "--folder", path)),
            ("berth", ("bench", "scheduler-perf", path)),
            ("berth", ("bench", "scheduler-perf", "--data", path)),
            ("berth", ("bench", "openb", "--data", path)),
            ("berth", ("bench", "own", "--config", path)),
            ("berth", ("bench", "own", "--profile", f"{path}/x")),
            ("kubectl-berth", ("why", "p", "--kubeconfig", path)),
            ("kubectl-berth", ("plugins", "--server", "https://127.0.0.1:1", "--token-file", path)),
            (
                "kubectl-berth",
                ("plugins", "--server", "https://127.0.0.1:1", "--certificate-authority", path),
            ),
            (
                "kubectl-berth",
                (
                    "plugins",
                    "--server",
                    "https://127.0.0.1:1",
                    "--client-certificate",
                    path,
                    "--client-key",
                    path,
                ),
            ),
            ("berth-sdk", ("serve", "fuzzed:Mine", "--listen", "unix:/no/such", "--credential-file", path)),
            ("berth-sdk", ("serve", "fuzzed:Mine", "--listen", f"unix:{path}/no/x")),
            ("berth-sdk", ("reflect", f"unix:{path}/no/x")),
            (
                "berth-sdk",
                ("reflect", "127.0.0.1:1", "--tls-ca", path, "--tls-cert", path, "--tls-key", path),
            ),
        )
    )
    return Shot(program, words)


def _odd_words(rng: random.Random) -> Shot:
    """Return a command with odd words as its options' values and its arguments."""
    if rng.random() < 0.15:
        sdk_words: tuple[str, ...] = rng.choice(
            (("serve", "fuzzed:Mine", "--listen", "unix:/no/such"), ("reflect",), ("completion",), ())
        )
        return Shot("berth-sdk", (*sdk_words, *(rng.choice(WORDS) for _ in range(rng.randint(0, 2)))))
    program = rng.choice(("berth", "berth", "berth", "kubectl-berth"))
    path, command = rng.choice(list(leaves((), GROUPS[program])))
    words: list[str] = []
    for param in rng.sample(command.params, min(len(command.params), rng.randint(0, 3))):
        if param.param_type_name == "argument" or not param.opts:
            words.append(rng.choice((*ODD_PATHS, "good.yaml")))
        elif isinstance(param, click.Option) and (param.is_flag or param.count):
            words.append(param.opts[-1])
        elif "watch" not in param.opts[-1]:
            odd = rng.choice(ODD_PATHS)
            words += [f"{param.opts[-1]}={odd}"] if rng.random() < 0.5 else [param.opts[-1], odd]
    words = [word for word in words if word not in ("--watch", "--list-all")]
    if path[0] == "bench" or path[-1] == "ui":  # these would start, and take minutes
        words.append("--output=nothing")
    if path[-1] in ("why", "check-config") and rng.random() < 0.7:
        words.insert(0, "config.yaml")
    if path[-1] == "simulate" and rng.random() < 0.7:
        words.insert(0, "good.yaml")
    if path[-1] == "scheduler":
        words.append(
            rng.choice(("--write-config-to=written", "--kubeconfig=no-such-kubeconfig", "--config=folder"))
        )
    return Shot(program, (*path, *words))


def leaves(path: tuple[str, ...], command: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Return the commands below a group, with the words that lead to each."""
    if isinstance(command, Commands):
        for name, below in command.each(click.Context(command)).items():
            yield from leaves((*path, name), below)
    else:
        yield path, command


def _run(program: Callable[[Sequence[str]], object], words: Sequence[str], stdin: bytes) -> Ended:
    out, err = io.BytesIO(), io.BytesIO()
    code: object = None
    with _streams(stdin, out, err), _limited():
        try:
            code = program(words)
        except SystemExit as end:
            code = end.code
        said = [raw.getvalue().decode(errors="replace") for raw in (out, err) if not raw.closed]
    return Ended(code or 0, *(said if len(said) == 2 else ("", said[-1] if said else "")))


@contextmanager
def _streams(stdin: bytes, out: io.BytesIO, err: io.BytesIO) -> Iterator[None]:
    kept = sys.stdin, sys.stdout, sys.stderr
    handlers, level, environment = logging.root.handlers[:], logging.root.level, dict(os.environ)
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", errors="strict", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in signals.items():
            signal.signal(number, handler)


@contextmanager
def _limited() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _of_group(group: click.Group, name: str) -> Callable[[Sequence[str]], object]:
    def program(words: Sequence[str]) -> object:
        # Without `run_group`, which takes every OSError for one of standard output.
        return group.main(args=list(words), prog_name=name, obj={})

    return program


GROUPS: Final = {"berth": berth, "kubectl-berth": kubectl_berth}
PROGRAMS: Final[dict[str, Callable[[Sequence[str]], object]]] = {
    "berth": _of_group(berth, "berth"),
    "kubectl-berth": _of_group(kubectl_berth, "kubectl berth"),
    "berth-sdk": berth_sdk,
}
