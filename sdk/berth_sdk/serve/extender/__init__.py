"""A plugin served as an HTTP scheduler extender, for a stock kube-scheduler."""
