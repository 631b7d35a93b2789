"""Manifests -> the content of an embedded cluster.

files.py      paths, folders and standard input -> texts
documents.py  a text -> its YAML or JSON documents, and the line of a field
reading.py    documents -> objects with their origin (lists taken apart, kinds checked)
workloads.py  a Deployment, StatefulSet, Job, ... -> the pods its controller would make
loading.py    all of it into an API server; every problem collected. Start here: `load`.
"""
