"""HTTP extenders: which are asked about a pod, their requests, and what becomes of their answers."""
