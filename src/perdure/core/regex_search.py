"""Regular expression search in untrusted text, within a time limit.

Some patterns take for ever on some texts, such as `(a+)+$` on many letters a. Python cannot interrupt itself there, and
no other thread runs meanwhile. So they are searched in a worker process, which is killed when the time is over.
"""

import os
import re
import threading

from .tool_worker_process import WORKERS

_MULTIPLYING = frozenset("*+?{|")
"""Characters of repetitions and alternatives: the time of a search without them is that of reading the text."""


def search_within_time(pattern: "re.Pattern[str]", text: str, seconds: float) -> bool:
    """Return True if a pattern is found in a text. Raises `TimeoutError` after `seconds`. To be called on a thread.

    On a system without process groups it is searched here, without a time limit.
    """
    if _MULTIPLYING.isdisjoint(pattern.pattern) or not hasattr(os, "fork"):
        return has_match(pattern, text)
    worker, is_late = WORKERS.take(), threading.Event()

    def expire() -> None:
        is_late.set()
        worker.kill()

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), expire)
    timer.daemon = True
    timer.start()
    try:
        is_value, result = worker.call((__name__, "has_match", {"pattern": pattern, "text": text}))
    except BaseException:
        worker.kill()
        if is_late.is_set():  # whatever the end of its pipes looks like
            raise TimeoutError(f"the search took longer than {seconds:g} seconds, and was ended") from None
        raise
    finally:
        timer.cancel()
    WORKERS.give_back(worker)
    if not is_value:
        raise result
    found: bool = result
    return found


def has_match(pattern: "re.Pattern[str]", text: str) -> bool:
    """Return True if a pattern is found in a text."""
    return pattern.search(text) is not None
