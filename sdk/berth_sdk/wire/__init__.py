"""Records <-> the contract's messages, and how the messages travel; for the server and the host alike."""
