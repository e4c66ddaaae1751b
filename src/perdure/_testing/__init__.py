"""Test doubles for agents, tools, models and stores, and contract tests for your own models and stores.

Nothing else in the package imports this one.
"""
