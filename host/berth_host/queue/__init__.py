"""The scheduling queue: chooses the pod or pod group to schedule next, and requeues rejected pods.

Start with `SchedulingQueue` (scheduling_queue.py). The other modules are its parts:

- `queued_pod`, `queued_group` (the entities of the queue), and `group_entries` with `group_forest`
- `places` (in which of its parts every entity is), with `heap`, `order`, `backoff`, `pool`, `gates`,
  and `moves` out of the pool
- `in_flight` and `hints` (events, and the pods that they may help), with `events` and `registrations`
- `nominator`, `flush_timers`, and `requests` (requeue requests of plugins)
- `interfaces`: what the queue needs of other packages; `counts`: its numbers for metrics

Around the queue: `wiring` and `questions` make its functions from plugins' clients, `reports` counts its
reports.
Source: kube-scheduler `pkg/scheduler/backend/queue`, v1.37.
"""
