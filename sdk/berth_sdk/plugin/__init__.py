"""The wire contract, generated from `proto/berth/plugin`: one sub-package per major version."""
