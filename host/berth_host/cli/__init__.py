"""The command line: `berth scheduler | simulate | why | check-config | plugins | bench`, and `kubectl-berth`.

main.py         the group, --version; called by `berth_host.__main__`
simulate.py, why.py, plugins.py, check_config.py    one command each
scheduler/      `berth scheduler`: flags, and their effect on the configuration and the process
simulation.py   configuration and manifests -> a host that ran until nothing changes any more
outcome.py      the cluster afterwards -> `report.Report`: the node of each pod, or why it has none
kubectl/        `kubectl berth why | plugins`: queries to a running host
rendering/      reports and answers -> text
"""
