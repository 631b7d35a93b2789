"""The command line: `berth scheduler | simulate | why | check-config | plugins | bench`, and `kubectl-berth`.

main.py         the group, --version; called by `berth_host.__main__`
simulate.py, why.py, plugins.py, check_config.py    one command each
scheduler/      `berth scheduler`: flags, and their effect on the configuration and the process
simulation.py   configuration and manifests -> a host that ran until nothing moved
outcome.py      the cluster afterwards -> `report.Report`, which pod is where, and why not
kubectl/        `kubectl berth why | plugins`: a running host is asked
rendering/      reports and answers -> text
"""
