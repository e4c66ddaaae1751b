"""What a tool is.

`tool` makes one of a function, `wrappers` change it, `context` is what it may use, of its run what `run_of_call`
says, `slots` shows content to people, `toolbox` holds the tools of an agent; `arguments` and `results` of a call, the
`binding` of its approval, and the `worker` that carries it out.
"""
