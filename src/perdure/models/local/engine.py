"""Weights in memory, once for each process and file, and the threads that ask them. Above: `transport.py`. Below:
`xllamacpp`, which is imported at the first request.

llama.cpp answers in a thread of ours and calls back for every token. A job that nobody wants any more is dropped if it
has not begun, and stopped at its next token, or at its next bit of the prompt, if it has.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from importlib import import_module
from queue import SimpleQueue
from typing import Any, TypeAlias

from msgspec import Struct

from perdure.core.error import ModelError

SLOTS = 2
"""How many answers are worked at together; others wait in a queue."""
MOST_THREADS = 8
BATCH_TOKENS = 128
"""Of a prompt, read at once. No job can be stopped in between."""
MOST_CACHE_MIB = 256
"""Of prompts that are kept beside those in the slots."""
_PATIENCE_SECONDS = 10.0
"""At the end of the process, for a thread that is in the middle of a batch."""

Deliver: TypeAlias = Callable[[bytes | Exception | None], None]


class Job:
    """One request. Its outcome is told to an event loop: pieces of JSON, then nothing, or an error."""

    def __init__(self, body: bytes, deliver: Deliver) -> None:
        self.body = body
        self.unwanted = False
        """Set from any thread when the answer is of no use any more."""
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver

    def tell(self, what: bytes | Exception | None) -> None:
        """Hand it to the event loop, from another thread."""
        if self.unwanted:
            return
        try:
            self._loop.call_soon_threadsafe(self._deliver, what)
        except RuntimeError:  # the loop is closed
            self.unwanted = True

    def take(self, piece: bytes) -> bool:
        """What llama.cpp calls with each piece; it stops when this is true."""
        if b'"prompt_progress"' not in piece:  # these are only asked for so that a long prompt can be stopped
            self.tell(piece)
        return self.unwanted


class Setup(Struct, frozen=True):
    """How weights are to be run. Different setups are different engines."""

    path: str
    context_tokens: int
    """For each slot."""
    slots: int
    threads: int


class Engine:
    """Weights, and the threads that ask them. They are loaded when the first job comes."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._loading = threading.Lock()
        self._server: Any = None
        self._at_work: set[Job] = set()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, name=f"perdure-local-{number}", daemon=True)
            for number in range(setup.slots)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Put a job into the queue."""
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._at_work.add(job)
            try:
                if not (job.unwanted or self._closing):
                    self._loaded().handle_chat_completions(job.body, job.take)
                job.tell(None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the one who waits has to hear of it
                job.tell(error)
            finally:
                self._at_work.discard(job)

    def _loaded(self) -> Any:
        with self._loading:
            if self._server is None:
                self._server = _server(self._setup)
            return self._server

    def close(self) -> None:
        """Stop all work and let go of the memory."""
        self._closing = True
        for _ in self._threads:
            self._jobs.put(None)
        for job in tuple(self._at_work):
            job.unwanted = True
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)
        if _forked:
            self.abandon()
        self._server = None

    def abandon(self) -> None:
        """Leave the weights in memory for good: to free them is to wait for threads, which a fork does not have."""
        if self._server is not None:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))


def _server(setup: Setup) -> Any:
    """Load the weights, which takes a second or more."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or threads that have nothing to do keep a core busy
    xllamacpp: Any = import_module("xllamacpp")  # it has no types
    wanted: Any = xllamacpp.CommonParams()
    wanted.model.path = setup.path
    wanted.n_ctx = setup.context_tokens * setup.slots
    wanted.n_parallel = setup.slots
    wanted.n_batch = wanted.n_ubatch = BATCH_TOKENS
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = setup.threads
    wanted.cache_ram_mib = MOST_CACHE_MIB
    wanted.use_jinja = True
    wanted.verbosity = -1  # it would write to our standard error
    _lock_the_door(wanted)
    try:
        return xllamacpp.Server(wanted)
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"llama.cpp cannot load {setup.path!r}: the file is damaged or too new for this version, or there is "
            f"not enough memory ({error}). Try `pip install --upgrade xllamacpp`"
        ) from error


def _lock_the_door(wanted: Any) -> None:
    """It also listens on a port of its own, whether one wants it or not: let nobody in."""
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_threads_http = 1
    wanted.api_keys = [os.urandom(16).hex()]
    wanted.ui = False


def threads_at_hand() -> int:
    """How many threads are of use here: as many as there are cores for us, within reason."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_THREADS)


# -- the engines of this process ---------------------------------------------------------------------------------------

_engines: dict[Setup, Engine] = {}
_lock = threading.Lock()
_watching = False
_forked = False
"""Whether this is the child of a process that has used llama.cpp."""


def engine_for(setup: Setup) -> Engine:
    """The engine of this setup, which is made when it is first asked for."""
    with _lock:
        _watch_the_process()
        if setup not in _engines:
            _engines[setup] = Engine(setup)
        return _engines[setup]


def _watch_the_process() -> None:
    """See to it that engines end with the process, and that a child of it gets its own."""
    global _watching  # noqa: PLW0603 - once for each process
    if not _watching:
        import atexit

        atexit.register(close_all)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_begin_as_a_child)
        _watching = True


def close_all() -> None:
    """End all engines of this process. A later request loads its weights again."""
    with _lock:
        engines = list(_engines.values())
        _engines.clear()
    for engine in engines:
        engine.close()


def _begin_as_a_child() -> None:
    """The threads of llama.cpp are not here, but at its end the process would wait for them all the same, for ever."""
    global _lock, _forked  # noqa: PLW0603 - it may be held by somebody who is not here
    _lock = threading.Lock()
    for engine in _engines.values():
        engine.abandon()
    _engines.clear()
    if not _forked:
        _forked = True
        import ctypes

        libc = ctypes.CDLL(None)
        if hasattr(libc, "on_exit"):  # of the GNU library: calls `_exit` with the status, after all of Python has ended
            libc.on_exit(libc._exit, None)  # noqa: SLF001 - its name
