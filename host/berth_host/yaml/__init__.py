"""The reader of YAML for manifests, configurations and kubeconfigs, with the rules of Kubernetes.

scalars.py  resolves one unquoted or tagged word
reader.py   makes values from libyaml's events: keys, merges, aliases, limits. Start here.
"""
