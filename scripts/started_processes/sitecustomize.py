"""Note the lines of the source that a process reaches which a test has started; `scripts.reached_lines` reads them.

Python imports this when it starts, where the folder of this file is in PYTHONPATH. Each line is appended to a file when
it is first reached, so that it is there although the process may be killed. What runs when a module is imported is not
noted: every process imports much that its test is not about.
"""

import os
import sys
from types import CodeType
from typing import Any

OPTIMIZED = 0x1
"""The flag of code that belongs to a function, and to no module or class."""


def note_lines(folder: str, source: str) -> None:
    """Append the place of each line below `source` that is reached to a file of this process."""
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - which Python 3.11 does not have
    notes = os.open(f"{folder}/{os.getpid()}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def enter(code: CodeType, _offset: int) -> object:
        if code.co_flags & OPTIMIZED and code.co_filename.startswith(source):
            monitoring.set_local_events(monitoring.COVERAGE_ID, code, monitoring.events.LINE)
        return monitoring.DISABLE

    def reach(code: CodeType, line: int) -> object:
        os.write(notes, f"{line} {code.co_filename}\n".encode())
        return monitoring.DISABLE

    monitoring.use_tool_id(monitoring.COVERAGE_ID, "reached lines")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.PY_START, enter)
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, reach)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)


if "PERDURE_REACHED_BELOW" in os.environ and hasattr(sys, "monitoring"):
    note_lines(os.environ["PERDURE_REACHED_BELOW"], os.environ["PERDURE_REACHED_SOURCE"])
