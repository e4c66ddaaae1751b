"""Named places where a test can make the process die. Above: whatever must survive that. Below: nothing.

    faults.point("store.append.before_commit")

does nothing, unless that name was armed, by `faults.arm({"store.append.before_commit": "kill"})` or, for a process
that is yet to start, by the environment:

    PERDURE_FAULTS="store.append.before_commit=kill,loop.effect_done=raise@3"

With `PERDURE_ALWAYS_RESUME=1` in the environment a run is thrown away after every append that leaves no effect under
way, and another one goes on from the log: whatever works in this mode survives a crash at any of these places.

Actions: `kill` (SIGKILL to ourselves), `stop` (SIGSTOP to ourselves), `raise` (`FaultInjected`). With `@N` it happens
the N-th time the point is passed and at no other; without, every time.
"""

import os
from collections.abc import Mapping

from .error import ConfigError

VARIABLE = "PERDURE_FAULTS"
"""The environment variable that arms points from outside."""

ALWAYS_RESUME = "PERDURE_ALWAYS_RESUME"
"""The environment variable that makes every run go on from the log after every append."""

always_resume = os.environ.get(ALWAYS_RESUME, "") not in {"", "0"}

POINTS: Mapping[str, str] = {
    "run.opened": "the input is stored, and nobody has been told so",
    "question.asked": "a question is stored, and nobody has been asked",
    "question.answered": "an answer is stored, and nothing has come of it",
    "loop.delivered": "what came from outside is stored, and the model has not been told",
    "loop.requested": "the request to the model is stored, and nothing has been sent",
    "loop.replied": "the reply is complete, and not stored",
    "loop.reply_stored": "the reply is stored, and none of its calls has begun",
    "loop.before_intent": "calls are allowed, and their intents are not stored",
    "loop.intent_stored": "intents are stored, and no effect has begun",
    "loop.effect_done": "an effect is done, and its result is not stored",
    "loop.result_stored": "a result is stored, and nobody has seen it",
    "store.append.before_commit": "entries are written inside a transaction that is not committed",
    "store.append.after_commit": "entries are committed, and the caller does not know it",
}
"""Every point that is passed somewhere, and where a process that dies there stands."""

_ACTIONS = ("kill", "raise", "stop")


class FaultInjected(Exception):
    """Raised by an armed point, in the place of an error that nobody foresaw: no part of Perdure expects it."""


class _Fault:
    __slots__ = ("action", "at", "passed")

    def __init__(self, action: str, at: int) -> None:
        self.action = action
        self.at = at
        """Which passing of the point it waits for; 0 for each."""
        self.passed = 0


_armed: dict[str, _Fault] = {}


def point(name: str) -> None:
    """The running program is at this place now."""
    if _armed:
        _pass(name)


def is_armed() -> bool:
    """Whether anything happens at any point."""
    return bool(_armed)


def names() -> tuple[str, ...]:
    """The points that can be armed."""
    return tuple(POINTS)


def arm(faults: Mapping[str, str]) -> None:
    """Make these actions (`"kill"`, `"raise@3"`) happen at these points, and nothing at any other."""
    armed = {name: _fault(name, action) for name, action in faults.items()}
    _armed.clear()
    _armed.update(armed)


def arm_from(text: str) -> None:
    """As `arm`, from text like `name=kill,other=raise@3`; an empty one disarms every point."""
    pairs = [item.strip().partition("=") for item in text.split(",") if item.strip()]
    arm({name.strip(): action.strip() for name, _, action in pairs})


def disarm() -> None:
    """Make every point harmless again."""
    _armed.clear()


def _fault(name: str, text: str) -> _Fault:
    if name not in POINTS:
        raise ConfigError(f"there is no fault point {name!r} to arm: use one of {', '.join(POINTS)}")
    action, counted, count = text.partition("@")
    if action not in _ACTIONS or (counted and not (count.isdecimal() and int(count) > 0)):
        raise ConfigError(f"fault point {name!r} cannot do {text!r}: use {', '.join(_ACTIONS)}, or one of them with @N")
    return _Fault(action, int(count or 0))


def _pass(name: str) -> None:
    fault = _armed.get(name)
    if fault is None:
        return
    fault.passed += 1
    if fault.at not in {0, fault.passed}:
        return
    if fault.action == "raise":
        raise FaultInjected(f"fault injected at {name!r}")
    import signal

    os.kill(os.getpid(), signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)


arm_from(os.environ.get(VARIABLE, ""))
