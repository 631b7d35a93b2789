"""The host's counters and measurements: every part of the host writes them, and `endpoints` serves them.

families.py           every family's name, type, labels, buckets
series.py             counters, histograms and their clock, which all other files use
scheduler_metrics.py  all of the scheduler's series in one object
exposition.py         families and series -> the Prometheus text
"""
