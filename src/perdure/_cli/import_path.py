"""Keep Python from importing modules from the folder in which the command runs.

With `python -m` and `python -c`, that folder is first in `sys.path`: a module named `json` in a project would be
imported instead of that of the standard library, and run. This module imports nothing that has not been imported when
Python starts.
"""

import os
import sys


def remove_working_folder_from_path() -> None:
    """Remove the working folder from `sys.path`, where Python or an entry of PYTHONPATH that is empty or `.` put it.

    An empty entry is what `PYTHONPATH=$PYTHONPATH:/lib` leaves if the variable was not set before. Folders that
    PYTHONPATH names by an absolute path stay. The variable is changed too, for the processes that are started.
    """
    here = _get_working_folder()
    if not sys.flags.safe_path and sys.path and sys.path[0] in {"", here}:
        del sys.path[0]
    given = os.environ.get("PYTHONPATH")
    entries = given.split(os.pathsep) if given else []  # an empty variable counts as none
    named = [each for each in entries if each and os.path.normpath(each) != os.curdir]
    if len(named) == len(entries):
        return
    if here not in named:
        sys.path[:] = [each for each in sys.path if each != here and os.path.normpath(each) != os.curdir]
    if named:
        os.environ["PYTHONPATH"] = os.pathsep.join(named)
    else:
        os.environ.pop("PYTHONPATH", None)


def _get_working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib may not be imported yet
    except OSError:  # it was removed
        return ""
