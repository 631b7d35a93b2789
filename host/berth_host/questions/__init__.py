"""Questions that change nothing: would it fit, what would a drain or a what-if do. Read `questions` first."""
