"""Plugins' answers, kept for equal pods while these answers hold."""
