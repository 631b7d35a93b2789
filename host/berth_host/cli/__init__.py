"""The command line: `berth simulate | why | check-config | plugins`.

main.py         the group, --version; called by `berth_host.__main__`
simulate.py, why.py, plugins.py, check_config.py    one command each
simulation.py   configuration and manifests -> a host that ran until nothing moved
outcome.py      the cluster afterwards -> `report.Report`, which pod is where, and why not
nearest_fit.py  what the nodes lack for a pod that fits nowhere
rendering/      reports -> text
"""
