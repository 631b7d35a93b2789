"""The service for other programs, generated from `proto/berth/query`: one sub-package per major version."""
