"""The union of what several plugins of one instance declare."""

from __future__ import annotations

from berth_sdk.needs import Need, NeedKind
from berth_sdk.selection import StateSelection


def nodes(*label_prefixes: str, annotation_prefixes: tuple[str, ...] = (), images: bool = False) -> Need:
    return Need(
        kind=NeedKind.NODE_SUMMARY,
        label_prefixes=label_prefixes or ("",),
        annotation_prefixes=annotation_prefixes,
        images=images,
    )


def test_no_needs_select_nothing() -> None:
    assert StateSelection.of([]) == StateSelection()


def test_label_prefixes_add_up_and_the_empty_one_takes_all() -> None:
    assert StateSelection.of([nodes("b/"), nodes("a/", "b/")]).node_labels == ("a/", "b/")
    assert StateSelection.of([nodes("b/"), nodes("")]).node_labels is None
    none = Need(kind=NeedKind.NODE_SUMMARY, label_prefixes=())
    assert StateSelection.of([none]).node_labels == ()
    assert StateSelection.of([none, nodes("b/")]).node_labels == ("b/",)


def test_annotations_and_images_are_selected_when_any_need_asks_for_them() -> None:
    selection = StateSelection.of([nodes(), nodes(annotation_prefixes=("x/",), images=True)])
    assert (selection.node_annotations, selection.images) == (("x/",), True)


def test_field_is_dropped_only_if_no_need_asks_for_it() -> None:
    drops_status = Need.node_objects("status", "metadata.annotations")
    drops_images = Need.node_objects("status.images")
    assert StateSelection.of([drops_status]).node_object == ("metadata.annotations", "status")
    assert StateSelection.of([drops_status, drops_images]).node_object == ("status.images",)
    assert StateSelection.of([drops_status, Need.node_objects()]).node_object == ()
    assert StateSelection.of([]).node_object is None


def test_pod_objects_bring_the_pods_and_their_labels_with_them() -> None:
    selection = StateSelection.of([Need.pod_objects()])
    assert (selection.pods, selection.pod_object, selection.node_summary) == (True, (), False)
    assert selection.pod_labels is None


def test_each_resource_has_its_own_fields_to_drop() -> None:
    selection = StateSelection.of(
        [
            Need.objects("persistentvolumeclaims", "status"),
            Need.objects("storage.k8s.io/csinodes"),
            Need.objects("persistentvolumeclaims", "status", "metadata.labels"),
        ]
    )
    assert selection.resources == (("persistentvolumeclaims", ("status",)), ("storage.k8s.io/csinodes", ()))


def test_selection_can_be_a_key() -> None:
    assert hash(StateSelection.of([nodes()])) == hash(StateSelection.of([nodes()]))
