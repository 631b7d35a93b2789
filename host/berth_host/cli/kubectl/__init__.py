"""`kubectl berth`: questions to a running host. The executable is `kubectl-berth`.

command.py       the group and its verbs; called by `berth_host.__main__`
target.py        the options that name the host, and their combined meaning
port_forward.py  a pod -> a port on loopback, through kubectl
asking.py        one GET on the secure port, and the meaning of its failures
"""
