"""The host's picture of the cluster: the cache (changes at once), the snapshot (stands still in a cycle).

Watch events and the scheduling cycle write to `Cache` and `ObjectStores`; at the start of a cycle
`Snapshot` takes over the changes, and the change log lists the changes between two snapshots.
"""
