"""A run: `loop` asks the model and runs its tool calls. Begin there.

`turn` has the parts of a turn, `tool_calls` what happens to its calls, `ending` how a run ends. `run` is the object
that they work on, `spec` has its inputs, `outcome` its result, `costs` what it has spent. Engines use them.
"""
