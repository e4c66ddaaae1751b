"""Replay a stored session offline, and compare it with its log."""
