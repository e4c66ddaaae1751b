"""What a tool is.

`tool` makes one of a function, `context` is what it may use, `slots` shows content to people, `toolbox` holds the
tools of an agent; `arguments` and `results` of a call, and the `worker` that carries it out.
"""
