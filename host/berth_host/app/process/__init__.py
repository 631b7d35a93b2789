"""A host as a process that schedules a real cluster: READ process.py FIRST."""
