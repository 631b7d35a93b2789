"""Kubernetes objects -> records: field by field, a wrong type is named by its field."""
