"""Keep Python from importing modules from the folder in which the command runs.

With `python -m` and `python -c`, that folder is first in `sys.path`: a module named `json` in a project would be
imported instead of that of the standard library, and run. This module imports nothing that has not been imported when
Python starts.
"""

import os
import sys


def remove_working_folder_from_path() -> None:
    """Remove the working folder from the start of `sys.path`, where Python put it. Entries of PYTHONPATH stay."""
    if not sys.flags.safe_path and sys.path and sys.path[0] in {"", _get_working_folder()}:
        del sys.path[0]


def _get_working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib may not be imported yet
    except OSError:  # it was removed
        return ""
