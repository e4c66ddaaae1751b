"""What a tool may be called on a wire. Pure. Above: wires. Below: nothing.

A tool of ours has a name that everybody takes. A model may call one that there is not, by any name; the call stays in
the conversation, and a provider refuses every later request with a name in it that is not to its liking.
"""

import re

LONGEST = 64
"""How long a name may be."""

_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")


def tool_name(name: str) -> str:
    """The name as every provider takes it, whatever a model has called."""
    return _STRANGE.sub("_", name)[:LONGEST] or "_"
