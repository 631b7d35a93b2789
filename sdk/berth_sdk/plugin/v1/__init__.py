"""Package `berth.plugin.v1` as Python: messages in `*_pb2`, stubs and servicers in `*_pb2_grpc`.

Generated and committed; `python proto/generate.py` writes it, `--check` compares it. Import the
modules themselves: `from berth_sdk.plugin.v1 import scheduling_pb2, scheduling_pb2_grpc`.
"""
