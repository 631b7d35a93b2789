"""A plugin in another process: requests, replies, repairs, and the outbox."""
