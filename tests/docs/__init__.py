"""README.md and docs/ are tested like code: blocks run, links resolve, the reference equals its sources."""
