"""Plugins' answers about equal pods, and when these stop to hold."""
