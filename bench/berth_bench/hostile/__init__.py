"""`berth bench hostile`: schedules pods and nodes of the largest size that an API server admits.

Measures CPU and the longest hold of the event loop for each, in berth and in kube-scheduler.
"""
