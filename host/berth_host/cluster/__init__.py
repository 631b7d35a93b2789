"""The cluster behind a port: `port` says what berth needs of it, `memory` is the embedded one."""
