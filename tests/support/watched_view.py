"""A handler of watch events that keeps its own view, and a list of what went wrong."""

from __future__ import annotations

from collections import defaultdict

from berth_host.cluster.port import WatchEvent


class WatchedView:
    """Objects by kind and key, as the events tell: uid and resource version. `faults`: what was wrong."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        self.versions: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.events: list[WatchEvent] = []
        self.faults: list[str] = []

    def handle(self, event: WatchEvent) -> None:
        self.events.append(event)
        item = event.new or event.old
        assert item is not None
        ref = item.ref
        known = self.objects[event.kind]
        what = f"{event.kind} {ref.key} {ref.resource_version}"
        if event.new is None:
            if known.pop(ref.key, ("", ""))[0] != ref.uid:
                self.faults.append(f"deleted, and not there: {what}")
            return
        if (event.old is None) != (ref.key not in known):
            self.faults.append(f"an add of what is there, or an update of what is not: {what}")
        if event.old is not None and event.old.ref.uid != ref.uid:
            self.faults.append(f"another object as an update: {what}")
        known[ref.key] = (ref.uid, ref.resource_version)
        seen = self.versions[event.kind, f"{ref.key} {ref.uid}"]
        if seen and seen[-1] >= int(ref.resource_version):
            self.faults.append(f"seen before: {what}")
        seen.append(int(ref.resource_version))
