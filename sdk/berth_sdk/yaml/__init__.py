"""The reader of YAML for manifests, configurations and kubeconfigs, with the rules of Kubernetes.

The host reads all its files with it, and the conformance kit the manifest of `--pod`. It needs PyYAML, which
the SDK has with its extra `yaml`.

encoding.py  decodes the bytes of a file
scalars.py   resolves one unquoted or tagged word
reader.py    makes values from libyaml's events: keys, merges, aliases, limits. Start here.
"""
