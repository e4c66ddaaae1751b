"""Agents, their sessions, and the driver that runs a session in this process."""
