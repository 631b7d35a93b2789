"""Whatever a command is given, it ends with an exit code and words, never with a traceback of berth's.

A seeded fuzz over the whole command line of `berth`, `kubectl berth` and `berth-sdk`, in this process.
BERTH_FUZZ_INPUTS: so many spoilt command lines, 500 without it; BERTH_FUZZ_SEED: the first seed.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
import yaml
from support import input_samples as samples
from support.any_command import GROUPS, Ended, Shot, any_shot, fire, leaves, prepare

INPUTS: Final = int(os.environ.get("BERTH_FUZZ_INPUTS", "500"))
FIRST_SEED: Final = int(os.environ.get("BERTH_FUZZ_SEED", "0"))
SHARES: Final = 5
LIMIT_S: Final = 60
CODES: Final = frozenset({0, 1, 2, 3, 4, 130})
OF_OURS: Final = re.compile(r'File "[^"]*(berth_host|berth_sdk|berth_plugins|site-packages)[/\\]')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working folder, with valid and odd files, and replace the workloads of the bench."""
    from berth_bench import command
    from berth_bench.running import WorkloadError

    def refused(workload: Any, settings: object) -> NoReturn:
        raise WorkloadError(f"{workload.name}: is not run here")

    monkeypatch.setattr(command, "run_in_child", refused)
    monkeypatch.setenv("KUBECONFIG", "/no/such/kubeconfig")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    prepare()
    return tmp_path


def assert_words(shot: Shot, ended: Ended) -> None:
    said = f"{ended.out}{ended.err}"
    assert ended.code in CODES, (shot.words, ended)
    assert not OF_OURS.search(said), (shot.words, said)
    # An author's own lines are shown where they were asked for, and by `berth-sdk serve`.
    assert "Traceback" not in said or "-v" in shot.words or shot.program == "berth-sdk", (shot.words, said)
    assert ended.code == 0 or said.strip(), shot.words


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, SHARES))]
)
def test_command_with_damaged_input_ends_with_a_message(share: int) -> None:
    for seed in range(FIRST_SEED + share, FIRST_SEED + INPUTS, SHARES):
        shot = any_shot(random.Random(seed))
        try:
            ended = fire(shot)
        except Exception as err:
            raise AssertionError(f"seed {seed}: {shot.program} {shot.words}: {err!r}") from err
        assert_words(shot, ended)


def test_input_is_valid_before_it_is_damaged() -> None:
    Path("policy.json").write_text(yaml.safe_dump(samples.POLICY))
    for number, manifests in enumerate(samples.MANIFESTS):
        Path("m.yaml").write_text(yaml.safe_dump_all(manifests))
        assert fire(Shot("berth", ("simulate", "m.yaml", "--fail-on-pending"))).code == 0, number
    for number, configuration in enumerate(samples.CONFIGURATIONS):
        Path("c.yaml").write_text(yaml.safe_dump_all(configuration))
        given = ("--plugin", "Mine=filter") if len(configuration) == 2 else ()
        ended = fire(Shot("berth", ("check-config", "c.yaml", *given)))
        assert ended.code == 0, (number, ended)
    ended = fire(Shot("kubectl-berth", ("why", "p", "--kubeconfig", "kubeconfig")))
    assert "cannot connect to https://127.0.0.1:1" in ended.err
    Path("cases.yaml").write_text(yaml.safe_dump(samples.CASES))
    assert "is not run here" in fire(Shot("berth", ("bench", "scheduler-perf", "cases.yaml"))).err
    assert "is not run here" in fire(Shot("berth", ("bench", "openb", "--data", "trace"))).err


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("number", range(len(samples.MODULES)))
def test_arbitrary_plugin_module_is_used_or_refused_with_a_message(number: int) -> None:
    name = f"stranger_{number}"
    Path(f"{name}.py").write_text(samples.MODULES[number], encoding="utf-8", errors="surrogateescape")
    own = samples.BERTH | {"plugins": [{"name": "Mine", "inProcess": f"{name}:Mine"}]}
    Path("config.yaml").write_text(yaml.safe_dump_all((samples.SCHEDULER, own)))
    for program, *words in (
        ("berth", "check-config", "config.yaml", "-o", "json"),
        ("berth", "simulate", "good.yaml", "--config", "config.yaml", "--strict"),
        ("berth-sdk", "serve", f"{name}:Mine", "--listen", "unix:/no/such/folder/x"),
    ):
        shot = Shot(program, tuple(words))
        assert_words(shot, fire(shot))


def test_every_command_is_tested_with_damaged_input() -> None:
    """Includes commands that are added later."""
    tried = {any_shot(random.Random(seed)).words[:2] for seed in range(1500)}
    tried_names = {words[:1] for words in tried} | tried
    for program, group in GROUPS.items():
        for path, _ in leaves((), group):
            assert path in tried_names, (program, path)


def run_in_shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line, in which `BERTH` is the program, with only these environment variables."""
    line = line.replace("BERTH", f"{sys.executable} -m berth_host").replace(
        "SDK", f"{sys.executable} -m berth_sdk"
    )
    return subprocess.run(
        ["/bin/sh", "-c", line],
        env={"PATH": os.environ["PATH"]} | environment,
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )


FULL: Final = b"the result cannot be written: No space left on device: free some space, or send"


@pytest.mark.sampled(every=11)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("BERTH simulate good.yaml >/dev/full", 1, FULL),
        ("BERTH check-config config.yaml -o json >/dev/full", 1, FULL),
        ("BERTH plugins >/dev/full", 1, FULL),
        ("BERTH scheduler --help >/dev/full", 1, FULL),
        ("SDK completion bash >/dev/full", 1, FULL),
        ("BERTH simulate good.yaml >&-", 0, b""),
        ("BERTH check-config config.yaml >&- 2>&-", 0, b""),
        ("BERTH simulate good.yaml 2>/dev/full", 0, b""),
        ("BERTH simulate broken.yaml 2>/dev/full", 2, b""),
        ("BERTH simulate broken.yaml 2>&-", 2, b""),
        ("BERTH bench scheduler-perf broken.yaml 2>/dev/full", 2, b""),
        ("SDK serve no:No --listen unix:x 2>/dev/full", 2, b""),
        ("cat good.yaml >pipe & BERTH simulate pipe", 0, b""),
        ("mkdir gone && cd gone && rmdir ../gone && BERTH simulate x.yaml", 2, b"x.yaml: cannot be read"),
        ("mkdir gone && cd gone && rmdir ../gone && BERTH bench own --profile x", 2, b"x cannot be written"),
        ("mkdir gone && cd gone && rmdir ../gone && BERTH plugins --folder .", 2, b"."),
        ("mkdir gone && cd gone && rmdir ../gone && BERTH scheduler --kubeconfig x", 1, b"kubeconfig"),
        ("BERTH scheduler", 1, b"found no cluster"),
        ("BERTH plugins --server https://127.0.0.1:1 --kubeconfig '~/x'", 2, b"there is no kubeconfig ~/x"),
        ("PYTHONIOENCODING=ascii BERTH check-config snow.yaml", 0, b""),
        ("PYTHONIOENCODING=ascii BERTH simulate snow-pod.yaml", 2, b""),
        ("BERTH simulate $(printf 'bad\\377.yaml')", 2, b"bad"),
    ],
)
def test_failing_streams_and_folders_are_reported_with_a_message(line: str, code: int, words: bytes) -> None:
    """No HOME and no locale is set, standard output is closed or full, the working folder is gone."""
    Path("config.yaml").write_text(yaml.safe_dump(samples.OLDER | {"extenders": []}))
    Path("broken.yaml").write_text("kind: [")
    profile = {"schedulerName": "\u2603"}
    Path("snow.yaml").write_text(yaml.safe_dump(samples.OLDER | {"extenders": [], "profiles": [profile]}))
    Path("snow-pod.yaml").write_text(yaml.safe_dump({"kind": "\u2603"}, allow_unicode=True))
    done = run_in_shell(line)
    assert done.returncode == code, done
    assert words in done.stderr, done
    assert b"Traceback" not in done.stdout + done.stderr, done
    assert b"Exception ignored" not in done.stderr, done


@pytest.mark.long
def test_reader_that_closes_the_pipe_ends_the_command_without_a_message(folder: Path) -> None:
    done = run_in_shell("BERTH simulate good.yaml -o json | true")
    assert (done.returncode, done.stderr) == (0, b"")
