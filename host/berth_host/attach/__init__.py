"""The life of plugins in other processes: found or launched, introduced, configured, kept, lost, restored;
and which of several instances is asked.
"""
