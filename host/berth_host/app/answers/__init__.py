"""Answers of a running host about its pods and plugins: `/berth/v1` on the secure port.

pages.py        paths -> pages and errors; added to the server by `app.endpoints`
pods.py         a pod -> `explain.pod_answer.PodAnswer`
whereabouts.py  where in the host a pod is now
timeline.py     the record of its queue entry -> steps with sentences
on_node.py      why it is not on one node
plugins.py      all plugins: where they run, how they fare
"""
