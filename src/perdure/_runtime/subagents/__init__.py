"""Agents that work for another agent, as a tool or in the background."""
