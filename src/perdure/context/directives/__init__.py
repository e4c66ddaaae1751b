"""What a person asks for inside a message: `/hook`, `/skill`, `@file`. Above: the assembly. Below: `core`.

`hook.py` says what a handler is given and may return; `token.py` finds `/name` and `code.py` what to leave alone;
`mention.py` finds `@path`, `secret_names.py` knows what is never read, `inside.py` reads, and `attachment.py` frames;
`directed.py` does it all in order.
"""

from .attachment import Mentions
from .directed import Directed, directed
from .hook import Controls, Hook, HookContext, HookFailed, Rewrite, ShortCircuit, by_name

__all__ = [
    "Controls",
    "Directed",
    "Hook",
    "HookContext",
    "HookFailed",
    "Mentions",
    "Rewrite",
    "ShortCircuit",
    "by_name",
    "directed",
]
