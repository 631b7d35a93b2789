"""Records are read once, and those of objects that are gone do not stay."""

from __future__ import annotations

import itertools
from typing import Any, cast

from berth_plugins.objects.records import SPARE_RECORDS, Records
from berth_sdk.handle import Handle
from berth_sdk.kube_object import KubeObject
from berth_sdk.tables.object_store import ObjectStore


class Stores:
    """A handle with one resource."""

    def __init__(self) -> None:
        self.store = ObjectStore()

    def objects(self, resource: str) -> ObjectStore:
        return self.store


def volume(name: str) -> KubeObject:
    raw: dict[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    return KubeObject.of(raw)


def test_record_is_read_again_for_another_object_of_the_name_alone() -> None:
    stores, count = Stores(), itertools.count(1)
    records = Records(cast(Handle, stores), "persistentvolumes", lambda item: next(count))
    for generation in (1, 2):
        one = volume("one")
        stores.store.put(one.ref, one, generation)
        assert [records.get("one"), records.get("one")] == [generation, generation]


def test_records_of_objects_that_are_gone_are_dropped_though_nobody_asks_about_them_again() -> None:
    stores = Stores()
    records = Records(cast(Handle, stores), "persistentvolumes", lambda item: item.ref.name)
    stays = volume("stays")
    stores.store.put(stays.ref, stays, 1)
    assert records.get("stays") == "stays"
    for number in range(4 * SPARE_RECORDS):
        one = volume(f"v{number}")
        stores.store.put(one.ref, one, 2 * number + 2)
        assert records.get(one.ref.name) == one.ref.name
        stores.store.remove("", one.ref.name, 2 * number + 3)
        assert records.kept_count < 2 * SPARE_RECORDS
    assert records.get("stays") == "stays"
