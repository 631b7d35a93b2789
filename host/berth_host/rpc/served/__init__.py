"""The transport to served plugins: requests, replies, repairs, and the outbox."""
