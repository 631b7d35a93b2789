"""Plugins with the names and arguments of kubernetes-sigs/scheduler-plugins: one module or folder each.

The plugins import the SDK and the checks of arguments of berth_plugins, so each of them can run in process or
served.
"""
