"""Package `berth.query.v1` as Python: messages in `query_pb2`, stub and servicer in `query_pb2_grpc`.

Generated and committed; `python proto/generate.py` writes it, `--check` compares it. Import the
modules themselves: `from berth_sdk.query.v1 import query_pb2, query_pb2_grpc`.
"""
