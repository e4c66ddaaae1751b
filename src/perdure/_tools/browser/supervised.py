"""Run a browser as a child of a supervisor process, and remove its folder when the last of its processes has ended.

Started as a program of its own by the driver of the browser, which knows only one executable and its arguments:
`python -I -S supervised.py CONTROL FOLDER COMMAND…`. CONTROL is a named pipe that only the host has
open for writing: when the host closes it, which its death does, `process_supervisor` ends the whole process tree. It
imports nothing of Perdure, so that it starts quickly. The descriptors 3 and 4, by which the browser is driven, are
passed on.
"""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType


def main(argv: list[str]) -> int:
    """Run the browser command in `argv` until it ends or the host program does, and return its exit code."""
    control, folder, command = argv[0], argv[1], argv[2:]
    child = os.fork()
    if child:  # the driver kills the process group that it has started: the work is done in another one
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF
    os.setpgid(0, 0)
    try:
        code = run_supervised(control, folder, command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def run_supervised(control: str, folder: str, command: list[str]) -> int:
    """Run the browser command below the supervisor, which ends its whole process tree, and return its exit code."""
    pipe = os.open(control, os.O_RDONLY | os.O_NONBLOCK)  # does not wait: the host may be gone already
    os.close(os.open(control, os.O_WRONLY))  # a pipe that no one has opened to write would never count as closed
    os.set_blocking(pipe, True)
    with tempfile.TemporaryFile(dir=folder) as variables:
        pairs = [b"%b=%b\0" % each for each in os.environb.items()]
        variables.write(b"".join(pairs))
        variables.seek(0)
        given = os.dup(variables.fileno())  # the supervisor closes it
    code: int = load_supervisor().main([str(pipe), str(given), *command])
    return code


def load_supervisor() -> ModuleType:
    """Import the module `process_supervisor` from the file beside this one, without importing the package `perdure`."""
    path = Path(__file__).parent / "../../_io/processes/supervisor.py"
    spec = importlib.util.spec_from_file_location("process_supervisor", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{str(path)!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
