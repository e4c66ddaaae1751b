"""Fault injection: named points in the code where a test can kill the process.

    faults.point("store.append.before_commit")

does nothing, unless that name was armed, by `faults.arm({"store.append.before_commit": "kill"})` or, for a process
that is yet to start, by the environment:

    PERDURE_FAULTS="store.append.before_commit=kill,loop.effect_done=raise@3"

With `PERDURE_ALWAYS_RESUME=1` in the environment a run is discarded after every append that leaves no effect in
progress, and another one resumes from the log: code that works in this mode survives a crash at any of these points.

Actions: `kill` (SIGKILL to this process), `stop` (SIGSTOP to this process), `raise` (`FaultInjected`). With `@N` it
happens the N-th time the point is passed and at no other; without, every time.
"""

import os
from collections.abc import Callable, Mapping

from .error import ConfigError

FAULTS_VARIABLE = "PERDURE_FAULTS"
"""The environment variable that arms points from outside."""

ALWAYS_RESUME_VARIABLE = "PERDURE_ALWAYS_RESUME"
"""The environment variable that makes every run resume from the log after every append."""

always_resume = os.environ.get(ALWAYS_RESUME_VARIABLE, "") not in {"", "0"}

POINTS: Mapping[str, str] = {
    "run.opened": "the input is stored, and the caller does not know it",
    "question.asked": "a question is stored, and has not been asked",
    "question.answered": "an answer is stored, and has had no effect",
    "loop.delivered": "a message from outside is stored, and has not been sent to the model",
    "loop.requested": "the request to the model is stored, and nothing has been sent",
    "loop.replied": "the reply is complete, and not stored",
    "loop.reply_stored": "the reply is stored, and none of its calls has begun",
    "loop.before_intent": "calls are allowed, and their intents are not stored",
    "loop.intent_stored": "intents are stored, and no effect has begun",
    "loop.effect_done": "an effect is done, and its result is not stored",
    "loop.result_stored": "a result is stored, and has not been used",
    "run.held": "a reply or a result is known, and is stored with what follows it",
    "store.append.before_commit": "entries are written inside a transaction that is not committed",
    "store.append.after_commit": "entries are committed, and the caller does not know it",
}
"""Every fault point, with the state in which a process that dies there leaves the log."""

_ACTIONS = ("kill", "raise", "stop")


class FaultInjected(Exception):
    """Raised at a fault point that a test has armed; the runtime never catches it."""


class _Fault:
    __slots__ = ("action", "at", "passed")

    def __init__(self, action: str, at: int) -> None:
        self.action = action
        self.at = at
        """The passing of the point at which it acts, counted from 1; 0 for every one."""
        self.passed = 0


_armed: dict[str, _Fault] = {}


fault_point: Callable[[str], object] = _armed.get
"""Kill the process or raise here if a test has armed the fault point of this name; otherwise do nothing.

While nothing is armed it is the `get` of an empty dict, the quickest call that does nothing: a turn passes seven
points. `arm` replaces it, so it is called as `faults.fault_point(…)`.
"""


def is_armed() -> bool:
    """Return True if any fault point is armed."""
    return bool(_armed)


def list_fault_points() -> tuple[str, ...]:
    """Return the names of all fault points."""
    return tuple(POINTS)


def arm(faults: Mapping[str, str]) -> None:
    """Arm fault points with actions such as `"kill"` or `"raise@3"` (at the third pass), and disarm all others."""
    global fault_point  # noqa: PLW0603 - see there
    armed = {name: _parse_fault(name, action) for name, action in faults.items()}
    _armed.clear()
    _armed.update(armed)
    fault_point = _pass_point if armed else _armed.get


def arm_from_text(text: str) -> None:
    """Arm fault points from text like `name=kill,other=raise@3`; an empty text disarms all of them."""
    pairs = [item.strip().partition("=") for item in text.split(",") if item.strip()]
    arm({name.strip(): action.strip() for name, _, action in pairs})


def disarm() -> None:
    """Disarm all fault points, so that none of them has an effect."""
    arm({})


def _parse_fault(name: str, text: str) -> _Fault:
    if name not in POINTS:
        raise ConfigError(f"there is no fault point {name!r} to arm: use one of {', '.join(POINTS)}")
    action, counted, count = text.partition("@")
    if action not in _ACTIONS or (counted and not (count.isdecimal() and int(count) > 0)):
        raise ConfigError(f"fault point {name!r} cannot do {text!r}: use {', '.join(_ACTIONS)}, or one of them with @N")
    return _Fault(action, int(count or 0))


def _pass_point(name: str) -> None:
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


arm_from_text(os.environ.get(FAULTS_VARIABLE, ""))
