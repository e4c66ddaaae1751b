"""Agents that work for others: as a tool, in the background, or in their place. Above: callers. Below: `build.py`.

`as_tool.py` makes a tool of an agent, or of a factory of agents. `attached.py` is a run that carries out a call of
another run, in the same log. `crew.py` has agents that work in the background in sessions of their own, and `job.py`
what the log keeps of that. `delegation.py` has the tools by which a model gives tasks to agents that it knows by name.
`report.py` says what came of a task. `handoff.py` lets another agent take a conversation over.
"""
