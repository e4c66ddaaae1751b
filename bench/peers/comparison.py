"""Measure every contestant in turns against one server; the best reading of each figure counts.

A round takes each contestant once, so that a machine that is busy for a while is busy for all of them.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.peers.catalogue import HAND, PEERS, PERDURE, Peer
from bench.peers.running import TrialError, run_python, run_trial, serve
from bench.startup import BARE, cpu_ms

Measured = dict[str, float]
TEXTS = ("store_kind",)
"""What a trial reports that is no number."""


class Thoroughness(NamedTuple):
    """Number of readings, and their sizes."""

    rounds: int
    starts: int
    """Fresh processes for the import and for the first answer."""
    sizes: dict[str, int]


THOROUGH = Thoroughness(
    2, 5, {"repeats": 3, "turns": 60, "deltas": 2_000, "crowd": 50, "runs": 60, "sessions": 200, "past_runs": 45}
)
QUICK = Thoroughness(
    1, 1, {"repeats": 1, "turns": 20, "deltas": 100, "crowd": 5, "runs": 5, "sessions": 20, "past_runs": 3}
)

PARTS = ("turns", "runs", "memory")
_INVENTORY = """
import json, sys
from importlib.metadata import distributions
own = {each.metadata["Name"].lower(): each.version for each in distributions()}
print(json.dumps({name: version for name, version in own.items() if name not in {"pip", "setuptools", "wheel"}}))
"""


class ContestantFigures(NamedTuple):
    """The measurements of one contestant."""

    peer: Peer
    version: str
    figures: Measured
    store_kind: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return {
            "name": self.peer.name,
            "version": self.version,
            "store_kind": self.store_kind,
            "figures": self.figures,
        }


def compare(names: Sequence[str], effort: Thoroughness, say: Callable[[str], None]) -> list[ContestantFigures]:
    """Measure the named contestants, or all; one that is not installed or fails is named and left out."""
    chosen = [peer for peer in (HAND, PERDURE, *PEERS) if not names or peer.name in names]
    for peer in [peer for peer in chosen if not peer.is_ready]:
        say(f"{peer.name} is not installed, and left out: `make peers` installs it or says why it cannot")
        chosen.remove(peer)
    found: dict[str, Measured] = {peer.name: {} for peer in chosen}
    kinds: dict[str, str] = {}
    with serve() as port:
        for round_number in range(effort.rounds):
            for peer in list(chosen):
                say(f"round {round_number + 1} of {effort.rounds}: {peer.name}")
                try:
                    _measure_once(peer, port, effort, found[peer.name], kinds)
                except TrialError as error:
                    say(f"{peer.name} did not get to the end, and is left out: {error}")
                    chosen.remove(peer)
    return [_finish(peer, found[peer.name], kinds[peer.name]) for peer in chosen]


def _measure_once(peer: Peer, port: str, effort: Thoroughness, best: Measured, kinds: dict[str, str]) -> None:
    parts = [*PARTS, *["first"] * effort.starts]
    for part in parts:
        told = run_trial(peer, part, port, effort.sizes)
        kinds[peer.name] = told.pop("store_kind")
        keep_best(best, told)
    python = str(peer.python)
    cpu_ms(peer.imported, python)  # compiles
    bare = min(cpu_ms(BARE, python) for _ in range(effort.starts))
    imported = min(cpu_ms(peer.imported, python) for _ in range(effort.starts))
    keep_best(best, {"import_ms": imported - bare})


def keep_best(best: Measured, told: Measured) -> None:
    """Merge readings into the best ones so far."""
    for key, value in told.items():
        best[key] = min(value, best.get(key, value))


def _finish(peer: Peer, figures: Measured, store_kind: str) -> ContestantFigures:
    """Add the versions, and the number of packages that an installation brings."""
    versions: dict[str, str] = json.loads(run_python(peer, "-c", _INVENTORY))
    if peer is PERDURE:
        from bench.startup import distributions

        figures["distributions"] = len(distributions("perdure"))
    elif peer is not HAND:
        figures["distributions"] = len(versions)
    name = peer.distribution or peer.name.lower()
    version = versions[name]
    if peer is HAND:
        version = f"aiohttp {version}"
    return ContestantFigures(peer, version, figures, store_kind)
