"""The commands that work on files: `berth simulate | why | fit | drain | compare | query | ui`.

`berth` finds them by the entry points of the group `berth.commands`.

simulate.py    the options, and what the others share; why.py, fit.py, compare.py, query.py, ui.py the others
simulation.py  configuration and manifests -> a host that ran until nothing changes any more
outcome.py     the cluster afterwards -> `report.Report`: the node of each pod, or why it has none
rendering/     reports and comparisons -> text
"""
