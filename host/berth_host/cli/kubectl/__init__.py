"""`kubectl berth`: queries to a running host. The executable is `kubectl-berth`.

command.py       the group and its commands; `berth_host.__main__` calls it
queue.py         `queue`
fit.py           `fit` and `drain`
target.py        the options that name the host, and their combined meaning
port_forward.py  a pod -> a port on loopback, through kubectl
passing.py       requests of the page, passed on to the host
asking.py        one request to the secure port, and the messages for its failures
"""
