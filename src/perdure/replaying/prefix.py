"""What the hash in a recorded request says of its instructions and tools. Above: `check.py`. Below: `core`.

A log has one hash for the instructions and one for the tools, joined by `-`. Logs of earlier versions have a single one
for both, which can be made again from a request that is at hand.
"""

import hashlib

import msgspec

from perdure.core.event import ModelRequested
from perdure.core.model import Request

_JOINT = "-"
_LENGTH = 16


def same_prefix(then: ModelRequested, now: ModelRequested, request: Request) -> bool:
    """Whether the hash that was recorded stands for the instructions and tools of this request, which is made now."""
    return then.prefix == (now.prefix if _JOINT in then.prefix else _of_both(request))


def what_differs(then: ModelRequested, now: ModelRequested) -> str:
    """Which of the two it is, as far as hashes that differ can tell."""
    if _JOINT not in then.prefix:
        return "the instructions or tools"
    before, after = then.prefix.split(_JOINT), now.prefix.split(_JOINT)
    names = zip(("the instructions", "the tools"), before, after, strict=False)
    return ", ".join([name for name, one, other in names if one != other])


def _of_both(request: Request) -> str:
    """The one hash that earlier versions have made."""
    return hashlib.sha256(msgspec.json.encode((request.instructions, request.tools))).hexdigest()[:_LENGTH]
