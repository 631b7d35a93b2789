"""The host's counters and measurements. The lowest layer: every part writes here, `endpoints` shows it.

families.py           every family's name, type, labels, buckets
series.py             the only counters, histograms and clock: every other file here is made of them
scheduler_metrics.py  all of the scheduler's series in one object
exposition.py         families and series -> the Prometheus text
"""
