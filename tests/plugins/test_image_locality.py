"""ImageLocality: the bytes that a node has already, scaled by the number of nodes with them."""

from __future__ import annotations

import pytest
from berth_plugins.image_locality import ImageLocality, normalized_name
from berth_sdk.errors import ObjectError
from berth_sdk.pod import Pod
from berth_sdk.testing import make_node, make_pod, make_table
from support.asking import IN_PROCESS, Ask, Plug
from support.emulated_version import args_of

PLUG = Plug(ImageLocality)
MIB = 1024 * 1024


async def test_image_score_equals_a_worked_example(ask: Ask) -> None:
    held = {"web:v1": 500 * MIB}
    nodes = make_table(
        [make_node("a", images=held), make_node("b", images=held), make_node("c"), make_node("d")]
    )
    assert await ask.score(PLUG, make_pod("web", images=["web:v1"]), nodes) == [23, 23, 0, 0]


async def test_image_spread_counts_all_nodes_not_only_candidates(ask: Ask) -> None:
    nodes = make_table([make_node("a", images={"web:v1": 500 * MIB}), make_node("b")])
    got = await ask.score(PLUG, make_pod("web", images=["web:v1"]), nodes.take([0]))
    assert got == [100 * (250 - 23) // (1000 - 23)]


async def test_the_same_image_counts_once_per_container_and_init_containers_too(ask: Ask) -> None:
    nodes = make_table([make_node("a", images={"web:v1": 700 * MIB})])
    pod = make_pod("web", images=["web:v1", "web:v1"], init_containers=[{"name": "i", "image": "web:v1"}])
    assert await ask.score(PLUG, pod, nodes) == [100 * (2100 - 23) // (3000 - 23)]


@pytest.mark.parametrize(("version", "counted"), [("", 3), ("1.37", 3), ("1.36", 1)])
async def test_image_volumes_count_as_images_since_1_37(ask: Ask, version: str, counted: int) -> None:
    nodes = make_table([make_node("a", images={"web:v1": 300 * MIB, "data:v1": 400 * MIB})])
    volumes = [
        {"name": "data", "image": {"reference": "data:v1"}},
        {"name": "unnamed", "image": {}},
        {"name": "other", "emptyDir": {}},
    ]
    pod = make_pod("web", images=["web:v1"], spec={"volumes": volumes})
    plug = Plug(ImageLocality, args=args_of("ImageLocality", version))
    assert await ask.score(plug, pod, nodes) == [100 * (700 - 23) // (1000 * counted - 23)]


async def test_image_score_is_clamped_for_small_and_huge_images(ask: Ask) -> None:
    nodes = make_table([make_node("a", images={"tiny:v1": 22 * MIB, "huge:v1": 5000 * MIB})])
    assert await ask.score(PLUG, make_pod("web", images=["tiny:v1"]), nodes) == [0]
    assert await ask.score(PLUG, make_pod("web", images=["huge:v1"]), nodes) == [100]
    assert await ask.score(PLUG, make_pod("web", images=["tiny:v1", "none:v1"]), nodes) == [0]


@pytest.mark.parametrize(("version", "score"), [("1.37", 18), ("1.36", 100)])
async def test_pod_without_containers_is_scored_as_upstream(ask: Ask, version: str, score: int) -> None:
    nodes = make_table([make_node("a", images={"data:v1": 400 * MIB}), make_node("b")])
    volume = {"name": "data", "image": {"reference": "data:v1"}}
    pod = make_pod("web", spec={"containers": [], "volumes": [volume]})
    # In 1.36 the upper limit is 0 then, below the lower one: what has any bytes to count lies above it.
    # A node has the image, of two: half of its bytes count.
    plug = Plug(ImageLocality, args=args_of("ImageLocality", version))
    assert await ask.score(plug, pod, nodes) == [score, 0]


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("web", "web:latest"),
        ("web:v1", "web:v1"),
        ("registry:5000/team/web", "registry:5000/team/web:latest"),
        ("registry:5000/web@sha256:0123", "registry:5000/web@sha256:0123"),
        ("", ":latest"),
    ],
)
def test_image_names_without_a_tag_are_the_latest(image: str, want: str) -> None:
    assert normalized_name(image) == want


async def test_summary_without_its_object_is_an_error() -> None:
    with pytest.raises(ObjectError, match=r"Need\.whole_pod"):
        await IN_PROCESS.score(PLUG, Pod(name="web", images=("web:v1",)), make_table([make_node("a")]))
