"""kube-scheduler's default plugins, vectorised over all nodes: one module each, named as the plugin.

The plugins import only the SDK, so each of them can run in process or served.
"""
