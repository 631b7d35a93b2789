"""Health checks of the process: what makes it unready, and which users are told why."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest
from berth_host import log
from berth_host.attach.state import State
from berth_host.config.loading import default_configuration, load_configuration
from berth_host.endpoints.health import Check
from berth_host.endpoints.request_response import Answer, Request, text
from support.hosts import World
from support.serving import FakeProcess, KnownUsers, Served, served

ADMIN = "clusterAdmin"
REMOTE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: Far}]}}
---
apiVersion: config.berth.io/v1alpha1
kind: BerthConfiguration
plugins:
- name: Far
  endpoint: unix:///nowhere/far.sock
  required: true
  points: {filter: {}}
"""


async def verbose(port: Served, path: str) -> tuple[int, list[str]]:
    reply = await port.ask("GET", f"{path}?verbose")
    return reply.status, reply.body.splitlines()


async def test_conditions_that_make_the_process_unready_or_unhealthy() -> None:
    process = FakeProcess(default_configuration())
    async with served(process, KnownUsers()) as port:
        assert (await verbose(port, "/readyz"))[0] == 200
        process.is_stopping = True
        status, lines = await verbose(port, "/readyz")
        assert (status, lines[1]) == (500, "[-]shutdown failed: reason withheld")
        assert (await verbose(port, "/livez"))[0] == 200
        process.is_stopping = False
        assert process.elector is not None
        process.elector.problem = "failed election to renew leadership on lease kube-scheduler"
        assert await verbose(port, "/healthz") == (
            500,
            ["[-]leaderElection failed: reason withheld", "healthz check failed"],
        )
        assert (await port.ask("GET", "/readyz")).status == 500
        assert (await port.ask("GET", "/readyz?exclude=leaderElection")).body == "ok"
        # Who may see single checks is told why.
        reply = await port.ask("GET", "/readyz/leaderElection", token=ADMIN)
        assert (reply.status, reply.body) == (
            500,
            "internal server error: failed election to renew leadership on lease kube-scheduler\n",
        )


async def test_process_is_ready_with_a_remark_while_a_required_plugin_is_absent() -> None:
    configuration = load_configuration(REMOTE, source="test.yaml")
    async with (
        World(configuration=REMOTE) as world,
        served(FakeProcess(configuration, world.host), KnownUsers()) as port,
    ):
        assert (await port.ask("GET", "/readyz")).body == "ok"
        status, lines = await verbose(port, "/readyz")
        assert (status, lines[-3:]) == (
            200,
            [
                "[+]plugins ok",
                "warn: plugins passed with a remark: /readyz/plugins has it",
                "readyz check passed",
            ],
        )
        # Who may see single checks is told which.
        assert (await port.ask("GET", "/readyz/plugins")).status == 403
        reply = await port.ask("GET", "/readyz/plugins", token=ADMIN)
        assert (reply.status, reply.body) == (200, "ok\nwarn: required plugins are not attached: Far\n")


async def test_process_is_not_ready_while_a_plugin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = load_configuration(REMOTE, source="test.yaml")
    async with (
        World(configuration=REMOTE) as world,
        served(FakeProcess(configuration, world.host), KnownUsers()) as port,
    ):
        places = world.host.attachments.attached_places
        refused = [
            replace(condition, state=State.REJECTED, reason="refuses its arguments: no such tier")
            for condition in places.conditions()
        ]
        monkeypatch.setattr(places, "conditions", lambda: refused)
        status, lines = await verbose(port, "/readyz")
        assert (status, lines[-2:]) == (500, ["[-]plugins failed: reason withheld", "readyz check failed"])
        reply = await port.ask("GET", "/readyz/plugins", token=ADMIN)
        assert (reply.status, reply.body) == (
            500,
            "internal server error: plugin Far is refused: refuses its arguments: no such tier\n",
        )


async def test_replica_that_stands_by_has_no_remark_on_a_plugin_that_it_has_met() -> None:
    configuration = load_configuration(REMOTE, source="test.yaml")
    async with (
        World(configuration=REMOTE) as world,
        served(FakeProcess(configuration, world.host), KnownUsers()) as port,
    ):
        world.host.attachments.attached_places.plugins["Far"].stood_by_at.add("somewhere")
        assert (await port.ask("GET", "/readyz/plugins", token=ADMIN)).body == "ok"


async def test_plugins_are_checked_from_the_reload_on_that_brings_them() -> None:
    async with World(configuration=REMOTE) as world:
        process = FakeProcess(default_configuration(), world.host)
        async with served(process, KnownUsers()) as port:
            assert (await port.ask("GET", "/readyz/plugins", token=ADMIN)).status == 404
            process.configuration = load_configuration(REMOTE, source="test.yaml")
            assert (await port.ask("GET", "/readyz/plugins", token=ADMIN)).status == 200


async def test_checks_are_counted_and_the_last_result_is_shown() -> None:
    process = FakeProcess(default_configuration())
    async with served(process, KnownUsers()) as port:
        await port.ask("GET", "/readyz")
        process.is_connected = False
        await port.ask("GET", "/readyz?exclude=shutdown")
        shown = (await port.ask("GET", "/metrics/slis", token=ADMIN)).body.splitlines()
    assert 'kubernetes_healthcheck{name="sched-handler-sync",type="readyz"} 0.0' in shown
    assert 'kubernetes_healthcheck{name="shutdown",type="readyz"} 1.0' in shown
    checks = "kubernetes_healthchecks_total"
    assert f'{checks}{{name="sched-handler-sync",status="error",type="readyz"}} 1.0' in shown
    assert f'{checks}{{name="sched-handler-sync",status="success",type="readyz"}} 1.0' in shown
    assert f'{checks}{{name="leaderElection",status="success",type="readyz"}} 2.0' in shown
    assert f'{checks}{{name="shutdown",status="success",type="readyz"}} 1.0' in shown


async def test_others_add_checks_and_routes_and_a_page_that_fails_says_so() -> None:
    async def route(request: Request) -> Answer:
        if request.path.endswith("/broken"):
            raise KeyError("secret")
        return text(f"{request.method} {request.path} {request.user.name} {dict(request.query)}")

    process = FakeProcess(default_configuration())
    async with served(process, KnownUsers()) as port:
        server = port.endpoints.server
        server.add_checks("livez", [Check("loop", lambda: "stuck")])
        server.add_route("/more/v1/pods/", route)
        assert (await port.ask("GET", "/livez")).status == 500
        reply = await port.ask("GET", "/more/v1/pods/ns/p?node=n1&node=n2", token=ADMIN)
        assert reply.body == "GET /more/v1/pods/ns/p admin {'node': ['n1', 'n2']}"
        assert (await port.ask("GET", "/more/v1/pods/ns/p")).status == 403
        broken = await port.ask("GET", "/more/v1/pods/broken", token=ADMIN)
        assert (broken.status, "secret" in broken.body) == (500, False)
        assert (await port.ask("GET", "/more/v1/podsandmore", token=ADMIN)).status == 404


@pytest.mark.parametrize(
    ("query", "status"), [("seconds=0.05", 200), ("seconds=0", 400), ("seconds=999", 400), ("seconds=x", 400)]
)
async def test_a_profile_is_made_for_some_seconds(query: str, status: int) -> None:
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        reply = await port.ask("GET", f"/debug/pprof/profile?{query}", token=ADMIN)
    assert reply.status == status
    assert ("function calls" in reply.body) == (status == 200)


async def test_objects_in_memory_are_counted_by_type_after_a_collection_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append("full"))
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        page = (await port.ask("GET", "/debug/pprof/heap", token=ADMIN)).body
        assert not collected
        kept = [Marked() for _ in range(777)]
        later = (await port.ask("GET", "/debug/pprof/heap?gc=1", token=ADMIN)).body
        assert collected == ["full"]
        assert (await port.ask("GET", "/debug/pprof/heap")).status == 403
    assert len(kept) == 777
    before, after = (
        {name: int(count) for name, _, count in (line.rpartition(" ") for line in one.splitlines())}
        for one in (page, later)
    )
    assert list(before)[:4] == ["objects", "frozen", "blocks", "malloced_bytes"]
    name = f"{Marked.__module__}.Marked"
    assert (before.get(name, 0), after[name]) == (0, 777)


class Marked:
    def __init__(self) -> None:
        self.to = self


async def test_two_profiles_at_once_are_one_too_many() -> None:
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        path = "/debug/pprof/profile?seconds=0.3"
        replies = await asyncio.gather(*(port.ask("GET", path, token=ADMIN) for _ in range(2)))
    assert sorted(reply.status for reply in replies) == [200, 409]


async def test_verbosity_is_set_by_put_alone_and_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[str] = []
    monkeypatch.setattr(log, "change_level", levels.append)
    async with served(FakeProcess(default_configuration()), KnownUsers()) as port:
        assert (await port.ask("PUT", "/debug/flags/v", token=ADMIN, data=b"4")).status == 200
        assert (await port.ask("PUT", "/debug/flags/v", token=ADMIN, data=b"much")).status == 400
        assert (await port.ask("PUT", "/debug/flags/v", token=ADMIN, data=b"9" * 5000)).status == 400
        assert (await port.ask("POST", "/debug/flags/v", token=ADMIN, data=b"5")).status == 406
        assert (await port.ask("PUT", "/debug/flags/v", token=ADMIN, data=b"0")).status == 200
    assert levels == ["DEBUG", "INFO"]
