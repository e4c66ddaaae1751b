"""Agents that work for others: as a tool, in the background, or in their place. Above: callers. Below: `build.py`.

as_tool.py     an agent, or a factory of agents, as a tool
attached.py    a run that carries out a call of another run, in the same log
crew.py        agents that work in the background, in sessions of their own
delegation.py  the tools by which a model gives tasks to agents that it knows by name
handoff.py     another agent takes the conversation over
"""
