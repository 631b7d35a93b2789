"""`GroupBook`: groups of pods and their members, as a test gives them to a plugin
(`RecordingHandle.groups`).
"""

from __future__ import annotations

from berth_sdk.pod import Pod
from berth_sdk.pod_group import LiveMembers, PodGroup


class GroupBook:
    """Implements `berth_sdk.pod_group.PodGroupReader`.

    >>> book = GroupBook()
    >>> book.put(PodGroup(name="train"))
    >>> book.put_member(Pod(name="a", group_key="podgroup/default/train"))
    >>> len(book.state("podgroup/default/train").all)
    1
    """

    def __init__(self) -> None:
        self._groups: dict[str, PodGroup] = {}
        self._members: dict[str, LiveMembers] = {}

    def put(self, *groups: PodGroup) -> None:
        """Add or replace the objects of groups."""
        for group in groups:
            self._groups[group.key] = group
            self._members.setdefault(group.key, LiveMembers())

    def put_member(self, pod: Pod, *, is_assumed: bool = False) -> None:
        """Add or replace a member. A pod with a node counts as bound, unless it `is_assumed`."""
        self._members.setdefault(pod.group_key, LiveMembers()).put(pod, is_assumed=is_assumed)

    def remove_member(self, pod: Pod) -> None:
        """Remove a member, if it is there."""
        members = self._members.get(pod.group_key)
        if members is not None:
            members.remove(pod.uid)

    def object(self, key: str) -> PodGroup | None:
        """Return the object of a group; None if there is none."""
        return self._groups.get(key)

    def state(self, key: str) -> LiveMembers | None:
        """Return the members of a group; None if there is neither a member nor an object."""
        return self._members.get(key)

    def root(self, key: str) -> PodGroup | None:
        """Return the group at the top of a group's tree; None while one of the objects is missing."""
        seen: set[str] = set()
        while key not in seen:
            seen.add(key)
            group = self._groups.get(key)
            if group is None or not group.parent_key:
                return group
            key = group.parent_key
        return None

    def children(self, key: str) -> list[PodGroup]:
        """Return the child groups of a CompositePodGroup, by creation time, then name."""
        found = [group for group in self._groups.values() if group.parent_key == key]
        return sorted(found, key=lambda group: (group.created_s or 0.0, group.name))
