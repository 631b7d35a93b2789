"""The language CEL: recordings of kube-scheduler, and hostile expressions."""
