"""Kubernetes objects -> records, field by field. An error names the field that has a wrong type."""
