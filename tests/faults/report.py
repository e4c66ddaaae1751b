"""What came of a trial: for whoever carries it out, and for whoever asked for it."""

import msgspec


class Report(msgspec.Struct):
    """What came of a trial."""

    done: int
    """How often it was done: kills, takeovers, races."""
    wrong: list[str]
    """What should not have been; nothing when every promise was kept."""
    seen: list[str] = []
    """What happened on the way, for whoever counts such things: where processes died, how they ended."""
    seconds: float = 0.0
    """How long the last process took to go on with everything and finish it."""
