"""Loads manifests into an embedded cluster. Start here: `loading.load`.

files.py      reads the texts of paths, folders and standard input
documents.py  splits a text into YAML or JSON documents, and finds the line of a field
reading.py    turns documents into objects with their origin (splits lists, checks kinds)
workloads.py  makes the pods of a Deployment, StatefulSet, Job, ...
loading.py    creates all objects in an API server, and collects every problem
"""
