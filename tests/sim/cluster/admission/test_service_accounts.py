"""A new pod gets a service account and a volume with its token, as the API server's admission gives it."""

from __future__ import annotations

from typing import Any

import pytest
from berth_host.model.clock import ManualClock
from berth_sdk.kube_object import KubeObject, ObjectRef
from berth_sdk.spec_reads import is_token_volume
from berth_sim.cluster.admission.service_accounts import TOKEN_PATH, ServiceAccounts
from berth_sim.cluster.server import ApiServer

_NOW_S = 1_800_000_000


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def tokens(made: KubeObject) -> list[str]:
    return [one["name"] for one in made.get("spec.volumes") or () if is_token_volume(one)]


def server(seed: int = 0) -> ApiServer:
    return ApiServer(ManualClock(_NOW_S), service_accounts=ServiceAccounts(seed))


def test_every_container_mounts_one_volume_with_the_token() -> None:
    made = server().create(pod(initContainers=[{"name": "i", "image": "i"}], volumes=[{"name": "own"}]))
    (name,) = tokens(made)
    assert name.startswith("kube-api-access-")
    assert [one["name"] for one in made.get("spec.volumes")] == ["own", name]
    for key in ("containers", "initContainers"):
        (mount,) = made.get(f"spec.{key}")[0]["volumeMounts"]
        assert mount == {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
    assert made.get("spec.serviceAccountName") == made.get("spec.serviceAccount") == "default"


def test_names_are_random_and_follow_from_the_seed() -> None:
    def names(seed: int) -> list[str]:
        one = server(seed)
        return [name for number in range(20) for name in tokens(one.create(pod(f"p-{number}")))]

    assert len(set(names(1))) == 20
    assert names(1) == names(1)
    assert not set(names(1)) & set(names(2))


@pytest.mark.parametrize(
    "spec",
    [
        {"automountServiceAccountToken": False},
        {
            "containers": [
                {"name": "c", "image": "i", "volumeMounts": [{"mountPath": TOKEN_PATH, "name": "v"}]}
            ]
        },
    ],
    ids=["not wanted", "there already"],
)
def test_pod_that_wants_no_token_or_has_one_gets_none(spec: dict[str, Any]) -> None:
    made = server().create(pod(serviceAccountName="robot", **spec))
    assert tokens(made) == []
    assert made.get("spec.serviceAccount") == "robot"


def test_pods_keep_their_specs_where_no_service_accounts_are_given_or_a_backup_is_restored() -> None:
    plain = ApiServer(ManualClock(_NOW_S)).create(pod())
    restored = server().create(pod(), restore=True)
    for made in (plain, restored):
        assert tokens(made) == []
        assert made.get("spec.serviceAccountName") is None


def test_volume_stays_when_the_pod_is_bound() -> None:
    one = server()
    made = one.create(pod())
    bound = one.bind(ObjectRef(name="p", namespace="default"), "n")
    assert tokens(bound) == tokens(made) != []
