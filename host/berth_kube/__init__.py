"""A real API server as a `ClusterPort`: the only package that imports the Kubernetes client.

`client.KubeClient` sends requests. `cluster.KubeCluster` is the port: `informer` lists and watches, `calls`
makes the cycles' requests, `events` writes events. Opened and composed by `process` for `berth scheduler`.
"""
