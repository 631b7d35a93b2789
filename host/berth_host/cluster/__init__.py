"""The cluster behind a port: `port` is berth's interface to it, `memory` the embedded cluster."""
