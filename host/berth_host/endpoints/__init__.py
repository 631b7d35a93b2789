"""The secure port: health, metrics, configuration and state of the host over HTTPS. READ server.py FIRST.

`secure_port` adds the pages. Paths, answers and access rules are kube-scheduler's; `/berth/v1/` is our own.
"""
