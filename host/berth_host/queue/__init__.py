"""The scheduling queue: which pod is tried next, and what brings a rejected one back.

`SchedulingQueue` (scheduling_queue.py) is the whole; READ IT FIRST. The other modules are its parts, one
idea each: `places` (where every pod is) over `heap`, `order`, `backoff`, `pool` and `gates`; `in_flight`
and `hints` (what happened, and whom it may help) over `events` and `registrations`; `nominator`;
`flush_timers`; `requests` (plugins asking). `seams` holds what the queue needs of others.
Source: kube-scheduler `pkg/scheduler/backend/queue`, v1.36.
"""
