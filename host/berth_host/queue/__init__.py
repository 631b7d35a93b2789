"""The scheduling queue: chooses the pod to schedule next, and requeues rejected pods.

Start with `SchedulingQueue` (scheduling_queue.py). The other modules are its parts:

- `places` (in which of its parts every pod is), with `heap`, `order`, `backoff`, `pool` and `gates`
- `in_flight` and `hints` (events, and the pods that they may help), with `events` and `registrations`
- `nominator`, `flush_timers`, and `requests` (requeue requests of plugins)
- `seams`: what the queue needs of other packages
 Around the
queue: `wiring` and `questions` make its functions from plugins' clients, `reports` counts its reports.
Source: kube-scheduler `pkg/scheduler/backend/queue`, v1.36.
"""
