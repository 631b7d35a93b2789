"""The embedded cluster of a soak, as the account and a client see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from berth_bench.soak.account import Account
from berth_bench.soak.clusters import CUT, embedded_cluster
from berth_bench.versus.objects import node, pod
from berth_host.errors.cluster import UnavailableError
from berth_kube.client import KubeClient
from berth_kube.connection import Connection

BINDING = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n1"}}
PODS = "/api/v1/namespaces/default/pods"


async def test_account_records_pods_that_are_created_bound_and_deleted(tmp_path: Path) -> None:
    account = Account(["n1"])
    async with embedded_cluster(account, tmp_path) as cluster:
        client = await KubeClient.open(Connection(kubeconfig=str(cluster.kubeconfig)))
        try:
            await cluster.create(node("n1", "4"))
            for name in "abc":
                await cluster.create(pod(name))
            await client.request("POST", f"{PODS}/a/binding", body=BINDING)
            assert (account.seen, account.bound, account.unbound) == (3, 1, ["b", "c"])
            account.leaves("b")
            await cluster.delete_pod("b")
            await cluster.delete_pod("b")
            await client.request("DELETE", f"{PODS}/c")
        finally:
            await client.close()
    assert account.vanished == {"c"}
    assert cluster.rebinds == 0


async def test_cut_cluster_answers_no_request_until_it_is_repaired(tmp_path: Path) -> None:
    async with embedded_cluster(Account([]), tmp_path) as cluster:
        client = await KubeClient.open(Connection(kubeconfig=str(cluster.kubeconfig)))
        try:
            (cut,) = cluster.interruptions
            assert cut.name == CUT
            await cut.begin()
            with pytest.raises(UnavailableError):
                await client.request("GET", PODS)
            await cut.end()
            assert (await client.request("GET", PODS))["items"] == []
        finally:
            await client.close()
