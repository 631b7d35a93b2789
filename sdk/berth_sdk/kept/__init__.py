"""A plugin's answers, kept for pods that it cannot tell apart, and the slots whose answers are right."""
