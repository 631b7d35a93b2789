"""`kubectl berth` against a real secure port: what it prints, and the exit codes that scripts use."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from berth_host.cli.main import berth
from click.testing import CliRunner
from support.groups import grouped, members, pod_group
from support.hosts import World, node
from support.serving import FakeProcess, KnownUsers, Served, served

from .conftest import READS, Ask, run


async def test_answer_about_a_pod_that_cannot_fit_has_all_parts(ask: Ask, world: World) -> None:
    result = await ask("why", "huge")
    assert result.exit_code == 3, result.output
    text = result.stdout
    assert text.startswith(f"default/huge: pending, unschedulable\n  {world.message_of('huge')}\n")
    assert "attempt 1: 0 of 3 nodes fit\n" in text
    assert "REJECTED BY\n  PLUGIN" in text
    assert "NEAREST FIT\n  node small-1 lacks 2200m CPU\n  node small-0 lacks " in text
    assert "MAY BE REQUEUED BY\n  REJECTED BY" in text
    timeline = text.partition("TIMELINE (UTC)\n")[2].splitlines()
    assert timeline[0].split() == ["TIME", "AGE", "STEP", "WHAT"]
    assert timeline[1].startswith("  2026-01-01 00:00:00   0.0s   queued")
    assert [line.split()[3] for line in timeline[1:]] == ["queued", "tried", "rejected", "unschedulable"]
    assert max(map(len, timeline)) < 150
    assert "TIMELINE" in text
    assert "LAST ATTEMPTS" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pod", "code", "first_line"),
    [
        ("web", 0, "default/web: on node small-0"),
        ("old", 0, "default/old: on node small-1"),
        ("gated", 3, "default/gated: pending, held back by PreEnqueue"),
        ("kept-out", 3, "default/kept-out: pending, held back by PreEnqueue"),
        ("held", 3, "default/held: pending, waits at Permit"),
        ("default/huge", 3, "default/huge: pending, unschedulable"),
    ],
)
async def test_every_pod_state_has_its_line_and_exit_code(
    ask: Ask, pod: str, code: int, first_line: str
) -> None:
    result = await ask("why", pod)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (code, first_line), result.output


async def test_json_and_yaml_are_the_answer_and_nothing_else(ask: Ask) -> None:
    value = json.loads((await ask("why", "huge", "-o", "json", "--node", "tainted")).stdout)
    assert value["onNode"]["plugin"] == "TaintToleration"
    shown = yaml.safe_load((await ask("why", "huge", "-o", "yaml", "--node", "tainted")).stdout)
    assert shown.keys() == value.keys()
    assert shown["rejections"] == value["rejections"]


async def test_node_and_attempts_add_their_parts(ask: Ask, world: World) -> None:
    result = await ask("why", "huge", "--node", "small-0", "--attempts", "5")
    lines = result.stdout.splitlines()
    at = lines.index("WHY NOT ON small-0")
    assert lines[at + 1].startswith(
        "  NodeResourcesFit rejected small-0: Insufficient cpu; node small-0 lacks "
    )


async def test_group_is_explained_with_its_members_and_its_exit_code() -> None:
    groups = [pod_group("big", least=5), *members("big", 5), pod_group("fits", least=2), *members("fits", 2)]
    async with (
        grouped([node("a"), *groups]) as world,
        served(FakeProcess(world.host.configuration, world.host), KnownUsers({"reads": READS})) as port,
    ):
        await world.settle()
        server = f"https://127.0.0.1:{port.endpoints.server.port}"
        options = ("--server", server, "--insecure-skip-tls-verify", "--token", "reads")
        result = await run("why", "podgroup", "big", *options)
        assert result.exit_code == 3, result.output
        assert result.stdout.startswith("PodGroup default/big: pending, ")
        assert "  0 of 5 pods placed, minimum 5: 5 missing\n  queued since 2026-01-01 " in result.stdout
        assert "NEXT POD default/big-" in result.stdout
        assert (await run("why", "podgroup", "fits", *options)).exit_code == 0
        value = json.loads((await run("why", "podgroup", "big", *options, "-o", "json")).stdout)
        assert value["members"]["missing"] == 5
        for arguments, code, said in (
            (("podgroup", "none"), 4, "no podgroup default/none is known here"),
            (("compositepodgroup", "big"), 4, "no compositepodgroup default/big is known here"),
            (("deployment", "big"), 2, "'deployment' is no kind of group"),
            (("podgroup", "a/b/c"), 2, "'a/b/c' is not a group name"),
        ):
            result = await run("why", *arguments, *options)
            assert (result.exit_code, result.stdout) == (code, ""), result.output
            assert said in result.stderr


async def test_unknown_and_foreign_pods_exit_with_4(ask: Ask) -> None:
    result = await ask("why", "webb", "-n", "shop")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("error: no pod shop/webb is known here")
    result = await ask("why", "elsewhere")
    assert result.exit_code == 4
    assert "its schedulerName is 'other'" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("why", "huge", "--token", "other"),
            1,
            "a ClusterRole must allow the verb get on the nonResourceURL",
        ),
        (("why", "huge", "--token", "wrong"), 1, "does not accept the credentials"),
        (("why", "a/b/c"), 2, "'a/b/c' is not a pod name"),
        (("why", "../plugins"), 2, "'../plugins' is not a pod name"),
        (("why", "."), 2, "'.' is not a pod name"),
        (("why", "huge\x1b[31m"), 2, "is not a pod name"),
        (("why", "huge", "--token", "a\nb"), 2, "--token: a token is one line"),
        (("why", "shop/web", "-n", "other"), 2, "write NAME, or NAMESPACE/NAME without -n"),
        (("why", "huge", "--token", "reads", "--token-file", "f"), 2, "--token and --token-file exclude"),
        (
            ("why", "huge", "--token-file", "/nowhere"),
            2,
            "--token-file: the file cannot be used: No such file",
        ),
        (("why", "huge", "--client-key", "f"), 2, "--client-certificate and --client-key go together"),
        (("why", "huge", "--attempts", "6"), 2, "6 is not in the range"),
        (("why",), 2, "Missing argument 'POD'"),
    ],
)
async def test_bad_credentials_exit_with_1_and_bad_usage_with_2(
    ask: Ask, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = await ask(*arguments)
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert said in result.stderr


async def test_server_that_cannot_be_reached_or_is_not_trusted_is_named(
    port: Served, process: FakeProcess
) -> None:
    server = f"https://127.0.0.1:{port.endpoints.server.port}"
    result = await run("why", "huge", "--server", server, "--token", "reads")
    assert result.exit_code == 1
    assert "its certificate is not trusted" in result.stderr
    assert "--insecure-skip-tls-verify" in result.stderr
    for odd in ("https://[::1", "https://h:99999", "https://h:x"):
        result = await run("why", "huge", "--server", odd)
        assert (result.exit_code, "write it as https://HOST:PORT" in result.stderr) == (2, True)
    result = await run("why", "huge", "--server", "https://127.0.0.1:1")
    assert result.exit_code == 1
    assert "https://127.0.0.1:1 cannot be reached: " in result.stderr
    result = await run("why", "huge", "--server", "http://127.0.0.1:1")
    assert (result.exit_code, "write it as https://HOST:PORT" in result.stderr) == (2, True)


async def test_standby_replica_gives_no_answer_and_exits_with_1(ask: Ask, process: FakeProcess) -> None:
    process.is_leading = False
    result = await ask("why", "huge")
    assert result.exit_code == 1
    assert "only the leader schedules pods" in result.stderr


@pytest.mark.slow
async def test_plugins_of_a_running_host_are_listed(ask: Ask, port: Served, tmp_path: Path) -> None:
    result = await ask("plugins")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["NAME", "RUNS", "STATE", "TRANSPORT", "CALLS", "MS/CALL", "FAILED", "POINTS"]
    holding = next(line for line in lines if line and line[0] == "Holding")
    assert holding[1:3] == ["in", "process"]
    assert holding[-2:] == ["preEnqueue,", "permit"]
    token = tmp_path / "token"
    token.write_text("reads\n")
    shown = await asyncio.to_thread(
        CliRunner().invoke,
        berth,
        [
            "plugins",
            "--server",
            f"https://127.0.0.1:{port.endpoints.server.port}",
            "--token-file",
            str(token),
            "--insecure-skip-tls-verify",
            "-o",
            "json",
        ],
        catch_exceptions=False,
    )
    assert {item["name"] for item in json.loads(shown.stdout)["plugins"]} > {"Holding"}


def test_folder_and_server_together_are_refused(tmp_path: Path) -> None:
    arguments = ["plugins", "--server", "https://127.0.0.1:1", "--folder", str(tmp_path)]
    result = CliRunner().invoke(berth, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give one of them" in result.stderr


def test_connection_options_without_a_server_are_refused() -> None:
    result = CliRunner().invoke(berth, ["plugins", "--token", "reads"])
    assert result.exit_code == 2
    assert "need --server" in result.stderr


async def test_queue_lists_reasons_and_pods_the_oldest_first(ask: Ask) -> None:
    result = await ask("queue")
    assert result.exit_code == 0, result.output
    numbers, reasons, pods = result.stdout.split("\n\n")
    assert numbers == "3 pods: 1 unschedulable, 2 gated"
    assert [line.split()[:2] for line in reasons.splitlines()] == [
        ["PLUGIN", "PODS"],
        ["Holding", "1"],
        ["NodeResourcesFit", "1"],
        ["SchedulingGates", "1"],
    ]
    lines = pods.splitlines()
    assert lines[0].split() == ["POD", "PART", "AGE", "ATTEMPTS", "PLUGIN", "REASON"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["default/gated", "gated"],
        ["default/huge", "unschedulable"],
        ["default/kept-out", "gated"],
    ]
    wide = (await ask("queue", "--reason", "Holding", "-o", "wide")).stdout.split("\n\n")[2].splitlines()
    assert "SCHEDULER" in wide[0]
    assert len(wide) == 2
    assert "default-scheduler" in wide[1]


async def test_queue_as_json_is_the_answer_and_filters_reach_the_host(ask: Ask) -> None:
    value = json.loads((await ask("queue", "--part", "gated", "--limit", "1", "-o", "json")).stdout)
    assert ([item["key"] for item in value["pods"]], value["matching"]) == (["default/gated"], 2)
    rest = await ask("queue", "--part", "gated", "--limit", "1")
    assert rest.stdout.endswith("\n1 more pod: raise --limit, or give --offset 1\n")
    rest = await ask("queue", "--limit", "1", "--offset", "1", "--order", "name", "--contains", "E")
    assert rest.stdout.split("\n\n")[2].splitlines()[1].startswith("default/huge ")
    nothing = await ask("queue", "--part", "backoff")
    assert "no pod is as asked for" in nothing.stdout
    assert (await ask("queue", "--token", "other")).exit_code == 1


async def test_fit_prints_where_the_pod_of_a_file_would_go(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {}\n---\n"
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
        "spec: {template: {spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 1}}}]}}}\n"
    )
    result = await ask("fit", "-f", str(path))
    assert result.exit_code == 0, result.output
    head, scores, rejections = result.stdout.split("\n\n")
    assert head == "default/web: would go to small-1\n  2 of 3 nodes fit"
    assert [line.split()[0] for line in scores.splitlines()] == ["SCORES", "NODE", "small-1", "small-0"]
    assert rejections.splitlines()[2].split()[:2] == ["TaintToleration", "1"]
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: big}\n"
        "spec: {priority: 5, containers: [{name: c, image: c, resources: {requests: {cpu: 4}}}]}\n"
    )
    result = await ask("fit", "-f", str(path))
    assert result.exit_code == 3
    assert "default/big: fits on no node\n  0/3 nodes are available: " in result.stdout
    assert "WOULD PREEMPT ON small-1\n" in result.stdout
    assert "NEAREST FIT\n  node small-1 lacks " in result.stdout
    value = json.loads((await ask("fit", "-f", str(path), "-o", "json")).stdout)
    assert value["preemption"]["node"] == "small-1"


async def test_pod_that_a_plugin_keeps_out_of_the_queue_does_not_fit_now(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "late.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: late, labels: {gate: closed}}\n"
        "spec: {containers: [{name: c, image: c}]}\n"
    )
    result = await ask("fit", "-f", str(path))
    assert result.exit_code == 3
    assert result.stdout.startswith("default/late: kept out of the queue; after that it would go to small-0")
    assert "KEPT OUT OF THE QUEUE BY\n  PLUGIN    REASON\n  Holding   " in result.stdout


async def test_fit_without_the_right_names_the_verb_and_the_path(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    result = await ask("fit", "-f", str(path))
    assert (result.exit_code, "none.yaml" in result.stderr) == (2, True)
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: c}]}\n"
    )
    result = await ask("fit", "-f", str(path), "--token", "other")
    assert result.exit_code == 1
    assert "must allow the verb post on the nonResourceURL /berth/v1/fit" in result.stderr


async def test_drain_lists_who_could_move_and_where(ask: Ask) -> None:
    result = await ask("drain", "small-1")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        3,
        "small-1: 0 of 1 pod could move elsewhere, 1 without a controller would be lost",
    )
    assert "  POD           FITS ON\n  default/old   small-0\n" in result.stdout
    assert (await ask("drain", "small-1", "--force")).exit_code == 0
    assert (await ask("drain", "small-9")).exit_code == 4
    assert (await ask("drain", "a/b")).exit_code == 2
