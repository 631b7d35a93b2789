"""The one reader of YAML: manifests, configurations and kubeconfigs mean what they mean to Kubernetes.

scalars.py  the value of one unquoted or tagged word
reader.py   events of libyaml -> values: keys, merges, aliases, limits. Start here.
"""
