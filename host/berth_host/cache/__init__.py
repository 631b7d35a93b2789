"""What the host knows of the cluster: the cache (changes at once), the snapshot (stands still in a cycle).

Watch events and the scheduling cycle write to `Cache` and `ObjectStores`; at the start of a cycle
`Snapshot` takes over what moved, and the change log says what moved between two snapshots.
"""
