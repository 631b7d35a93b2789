"""The secure port: health, metrics, configuration and state of the host over HTTPS. Read server.py first.

`secure_port` adds the pages. Paths, answers and access rules are kube-scheduler's, except `/berth/v1/`.
"""
