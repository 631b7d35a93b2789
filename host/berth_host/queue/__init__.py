"""The scheduling queue: picks the pod to try next, and brings rejected pods back.

`SchedulingQueue` (scheduling_queue.py) is the whole; READ IT FIRST. The other modules are its parts, one
idea each: `places` (where every pod is) over `heap`, `order`, `backoff`, `pool` and `gates`; `in_flight`
and `hints` (the events, and the pods they may help) over `events` and `registrations`; `nominator`;
`flush_timers`; `requests` (plugins asking). `seams` holds the queue's needs of other packages. Around the
queue: `wiring` and `questions` make its functions from plugins' clients, `reports` counts its reports.
Source: kube-scheduler `pkg/scheduler/backend/queue`, v1.36.
"""
