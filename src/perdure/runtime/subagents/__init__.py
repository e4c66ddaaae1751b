"""Subagents: agents that work for another agent, as a tool or in the background.

`subagent_tool.py` makes a tool of an agent, or of a factory of agents. `child_run.py` carries out a tool call of one
run by a child run in the same log. `background_agents.py` runs agents in the background, each in a separate session.
`delegation_tools.py` has the tools by which a model gives tasks to agents that it knows by name.
"""
