"""The program of a worker process: it calls the functions of isolated tools, one after another.

Requests and replies are frames on two pipes: eight bytes of length, and a pickle. The host is the parent process, and
both run the same program: isolation is for stopping work, and not a wall against it.
"""

import asyncio
import inspect
import os
import pickle
import signal
from importlib import import_module
from typing import Any, BinaryIO, cast

_LENGTH_BYTES = 8
_MAIN_KEYS = ("init_main_from_name", "init_main_from_path")
_NO_GUARD = b"perdure: an isolated tool of the main script: put what runs agents below if __name__ == '__main__':\n"

main_script: dict[str, Any] = {}
"""Where the main script of the host is, until it is loaded."""
is_loading_main: list[bool] = []
"""Not empty while the main script is imported."""


def write_frame(stream: BinaryIO, value: Any) -> None:
    """Write a value to a pipe as one frame: its length, then its pickled bytes."""
    data = pickle.dumps(value)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    stream.flush()


def read_frame(stream: BinaryIO) -> Any:
    """Read one frame from a pipe, and return the value in it.

    Raises `EOFError` when the other side has closed the pipe.
    """
    head = stream.read(_LENGTH_BYTES)
    length = int.from_bytes(head, "big")
    data = stream.read(length) if len(head) == _LENGTH_BYTES else b""
    if len(head) < _LENGTH_BYTES or len(data) < length:
        raise EOFError
    return pickle.loads(data)  # noqa: S301 - from the other half of this program


def apply_host_settings(preparation: dict[str, Any]) -> None:
    """Set the import path, `sys.argv` and working folder of this worker process to those of the host process.

    The host's main script is imported only when one of its functions is called.
    """
    from multiprocessing import spawn

    main_script.update({name: preparation.pop(name) for name in _MAIN_KEYS if name in preparation})
    spawn.prepare(preparation)


def load_main_script() -> None:
    """Import the main script of the host under another name, as multiprocessing does, for the functions in it."""
    from multiprocessing import spawn

    if main_script and not is_loading_main:
        is_loading_main.append(True)
        spawn.prepare(dict(main_script))
        is_loading_main.clear()
        main_script.clear()


def exit_if_importing_main() -> None:
    """Exit this worker process if an isolated tool is called while the worker imports the host's main script.

    Otherwise each worker would start another one, without end.
    """
    if is_loading_main:
        os.write(2, _NO_GUARD)
        os._exit(1)


def find_function(module: str, name: str) -> Any:
    """Return a function by its module and qualified name; if that is a tool, the function of the tool."""
    if module == "__main__":
        load_main_script()
    found: Any = import_module(module)
    for step in name.split("."):
        found = getattr(found, step)
    return getattr(found, "function", None) or found


def call_function(module: str, name: str, arguments: dict[str, Any]) -> Any:
    """Call the function of this module and name, plain or async, and return its value."""
    value = find_function(module, name)(**arguments)
    return asyncio.run(_await_value(value)) if inspect.isawaitable(value) else value


async def _await_value(value: Any) -> Any:
    return await value


def answer_request(request: tuple[str, str, dict[str, Any]]) -> tuple[bool, Any]:
    """Call the function named in a request; return True and its return value, or False and its exception."""
    try:
        return True, call_function(*request)
    except BaseException as error:  # noqa: BLE001 - every error is the result of the call
        return False, error


def serve_requests(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer function-call requests from the host process until it closes the pipe.

    The first frame prepares the process.
    """
    try:
        apply_host_settings(read_frame(requests))
        while True:
            is_value, result = answer_request(read_frame(requests))
            try:
                write_frame(replies, (is_value, result))
            except Exception as error:  # noqa: BLE001 - what cannot be pickled is told as text
                write_frame(replies, (False, TypeError(_describe_unpicklable(is_value, result, error))))
    except EOFError:
        return


def _describe_unpicklable(is_value: bool, result: Any, error: Exception) -> str:  # noqa: FBT001 - a part of the reply
    if is_value:
        return f"an isolated tool must return what can be pickled, and {type(result).__name__} cannot: {error}"
    return f"{type(result).__name__}: {result}"


def end_with_host(life: int, pipes: tuple[int, ...] = (0, 1)) -> None:
    """Start a process that kills this worker, and all that it started, when the host process ends."""
    worker = os.getpid()
    if os.fork() == 0:
        kill_worker_after_host(life, worker, pipes)
    os.close(life)


def kill_worker_after_host(life: int, worker: int, pipes: tuple[int, ...]) -> None:
    """Wait until the host process has ended, or has closed the pipe `life`; then kill the worker's process group."""
    for each in pipes:
        os.close(each)  # or the host would not see that the worker has ended
    os.read(life, 1)
    os.killpg(worker, signal.SIGKILL)


def move_pipes_off_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Move the pipes to the host from standard input and output to other descriptors, and return them.

    Otherwise the host would read what a tool prints as a reply.
    """
    requests, replies = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return cast("BinaryIO", os.fdopen(requests, "rb")), cast("BinaryIO", os.fdopen(replies, "wb"))


def run(life: int) -> None:
    """Run the worker process: set up its pipes, and answer the requests of the host until it closes the pipe.

    The host starts this process as the leader of a session.
    """
    end_with_host(life)
    requests, replies = move_pipes_off_stdio()
    with requests, replies:
        serve_requests(requests, replies)
