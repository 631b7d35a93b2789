"""The host's state of the cluster: the cache, which changes at once, and the snapshot, fixed during a cycle.

Watch events and the scheduling cycle write to `Cache` and `ObjectStores`. At the start of a cycle `Snapshot`
applies the changes. The change log lists the changes between two versions of the snapshot.
"""
