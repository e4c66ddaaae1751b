"""A run: `loop` asks the model and runs its tool calls.

`run` is the object that it works on, `spec` has its inputs, `outcome` its result. Engines use them; `tool_calls`
has what happens to one call.
"""
