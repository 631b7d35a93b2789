"""A plugin in another process: requests, replies, repairs, and what is sent until it is acknowledged."""
