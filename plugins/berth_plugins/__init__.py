"""kube-scheduler's default plugins, vectorised over all nodes: one module each, named as the plugin.

They import the SDK alone, so that each of them runs inside the host or in a process of its own.
"""
