"""The conformance kit: plays the host against a plugin server, and names what breaks the contract.

`berth-sdk conformance ENDPOINT` runs it. It depends on the generated code of the contract and on gRPC alone.
"""
