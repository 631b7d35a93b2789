"""The command line: `berth scheduler | check-config | migrate | plugins`, and `kubectl-berth`.

main.py         the group, --version; called by `berth_host.__main__`
plugins.py, check_config.py, migrate.py    one command each
scheduler/      `berth scheduler`: flags, and their effect on the configuration and the process
commands.py     the group; `simulate`, `bench` and other commands of other packages are found by entry points
kubectl/        `kubectl berth why | plugins`: queries to a running host
rendering/      reports and answers -> text
"""
