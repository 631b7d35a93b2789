"""A real API server as a `ClusterPort`: the only package that knows the Kubernetes client.

`client.KubeClient` sends requests, `cluster.KubeCluster` is the port: `informer` brings the changes, `calls`
makes the cycles' requests, `events` writes events. Opened and composed by `app` for `berth scheduler`.
"""
