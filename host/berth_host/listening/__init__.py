"""Sockets that others reach: limits on connections, turns of TLS handshakes, and the way to a gRPC server."""
