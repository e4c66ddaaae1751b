"""The program that carries out trials, each with processes that are forked from it.

    python -m tests.faults.trials      one line of JSON in for each trial, one line of JSON out

Above: `workshop.py`, which starts several of these. Below: `kills.py`, `takeovers.py`, `races.py`, `questions.py`.
"""

import faulthandler
import gc
import importlib
import sys
import tempfile
from typing import Any, TypeAlias

import msgspec

from perdure._stores.postgres import operations as postgres_database  # noqa: F401 - loaded once, and not in each child
from tests.faults.children import Order, Place, Tell, drive
from tests.faults.families import FamilyTrial
from tests.faults.kills import ClerkTrial, KillTrial
from tests.faults.outside import OutsideTrial
from tests.faults.outside_contention import ContentionTrial
from tests.faults.questions import QuestionTrial
from tests.faults.races import RaceTrial
from tests.faults.takeovers import TakeoverTrial
from tests.faults.tools import tools
from tests.faults.zygote import Bell, nursery

Trial: TypeAlias = (
    KillTrial | ClerkTrial | TakeoverTrial | RaceTrial | QuestionTrial | FamilyTrial | OutsideTrial | ContentionTrial
)
_trials: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Trial)


def load_all(bell: Bell) -> None:
    """Load what a child would load at first use: one of them tries everything, and tells."""
    here = frozenset(sys.modules)

    def rehearse(tell: Tell) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("sqlite", "file"):
                drive(Order(Place(f"{kind}:{folder}/{kind}"), f"{folder}/ledger", "rehearsal", ["s"]), lambda _: None)
        for name in sys.modules.keys() - here:
            tell(name)

    with nursery(bell) as children:
        child = children.fork(rehearse)
        children.end(child)
        if child.status != 0:
            sys.exit("\n".join(["a conversation that nobody kills went wrong:", *child.lines]))
        for name in child.lines:
            importlib.import_module(name)
    tools("nowhere")  # what is worked out once for all


def serve() -> None:
    """Carry out each trial that comes in, until there are no more."""
    faulthandler.enable()  # for all children too
    bell = Bell()
    load_all(bell)
    gc.collect()
    gc.freeze()  # what is loaded stays shared with the children
    for line in sys.stdin.buffer:
        with nursery(bell) as children:
            report = _trials.decode(line).carry_out(children)
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
