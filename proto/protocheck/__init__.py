"""Checks of the contract's .proto files, run by `proto/generate.py` and by `tests/contract`.

compiler  .proto files -> generated Python, or descriptors (the only module that starts protoc)
drift     freshly generated code against the committed code
names     buf's STANDARD naming rules and the comment rules, over the descriptors
reserved  names that v1 keeps free for later minors
"""
