"""The record of one attempt, which every step and every call gets, in three parts.

call_record.py  what a call needs: the cycle's id, a part for each plugin, the budget
cycle.py        what the cycle of a pod knows: how far it is, what the search found
account.py      what explains it afterwards: the time of calls, what it went on without
group_cycle.py  the records of a group and of its placements
"""
