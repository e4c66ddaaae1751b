"""What has to be done between the steps of a run. Above: `loop.py`. Below: the run, what it was given, what has come.

The loop comes here before the model is asked and before its calls are made. The model is told nothing of it.
"""

from .event import GrantRevoked
from .permission import Permissions
from .run import Run


async def tend(run: Run) -> None:
    """Take note of what people have closed or taken back; then whatever the run was given to do: sum up, shorten, …"""
    if run.mailbox.notes:
        await take_notes(run)
    for upkeep in run.upkeep:
        await upkeep(run)


async def take_notes(run: Run) -> None:
    """Store what people have closed or taken back, and hold to it from here on."""
    events, names = run.mailbox.take_notes()
    await run.emit(*[run.stamped(each) for each in events], names=names)
    for event in events:
        if isinstance(event, GrantRevoked) and isinstance(run.gate, Permissions):
            run.gate.grants.forget(event.grant_id)
