"""Agents, their sessions, the driver (which runs a session in this process), and the assembly of a run."""
