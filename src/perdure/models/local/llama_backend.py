"""Load model weights once per process, and generate replies with llama.cpp (`xllamacpp`) on threads.

`xllamacpp` is imported at the first request. llama.cpp generates in a thread of this module and calls back for every
token. A cancelled job is dropped if it has not started; otherwise it stops at its next token, or its next batch of the
prompt.
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

DEFAULT_SLOTS = 2
"""Default number of concurrent replies; others wait in a queue."""
MAX_THREADS = 8
BATCH_TOKENS = 128
"""Tokens of a prompt processed at once. A job cannot be stopped within a batch."""
MAX_CACHE_MIB = 256
"""Memory for cached prompts besides those in the slots."""
_JOIN_TIMEOUT_SECONDS = 10.0
"""Timeout at process exit for a thread in the middle of a batch."""

Deliver: TypeAlias = Callable[[bytes | Exception | None], None]


class GenerationJob:
    """Job to generate one reply with llama.cpp; its output is passed to an event loop in pieces of JSON."""

    def __init__(self, body: bytes, deliver: Deliver) -> None:
        self.body = body
        self.is_cancelled = False
        """True if the reply is not needed any more. Set from any thread."""
        self._loop = asyncio.get_running_loop()
        self._deliver = deliver

    def deliver(self, what: bytes | Exception | None) -> None:
        """Pass a piece of output, an error, or `None` at the end, to the event loop. Called on a backend thread."""
        if self.is_cancelled:
            return
        try:
            self._loop.call_soon_threadsafe(self._deliver, what)
        except RuntimeError:  # the loop is closed
            self.is_cancelled = True

    def handle_chunk(self, piece: bytes) -> bool:
        """Handle a piece of output from llama.cpp; returning True stops the generation."""
        if b'"prompt_progress"' not in piece:  # only requested so that a long prompt can be stopped
            self.deliver(piece)
        return self.is_cancelled


class BackendOptions(Struct, frozen=True):
    """Options of a llama.cpp backend (weights, context, threads). Models with equal options share one backend."""

    path: str
    context_tokens: int
    """Context window of each slot."""
    slots: int
    threads: int


class LlamaBackend:
    """The loaded weights of a local model, and the threads that generate with them. Loaded at the first request."""

    def __init__(self, setup: BackendOptions) -> None:
        self._setup = setup
        self._jobs: SimpleQueue[GenerationJob | None] = SimpleQueue()
        self._loading = threading.Lock()
        self._server: Any = None
        self._at_work: set[GenerationJob] = set()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run_jobs, name=f"perdure-local-{number}", daemon=True)
            for number in range(setup.slots)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: GenerationJob) -> None:
        """Queue a generation job, which a thread of the backend runs."""
        self._jobs.put(job)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._at_work.add(job)
            try:
                if not (job.is_cancelled or self._closing):
                    self._load_once().handle_chat_completions(job.body, job.handle_chunk)
                job.deliver(None)
            except Exception as error:  # noqa: BLE001 - any error goes to the waiting request
                job.deliver(error)
            finally:
                self._at_work.discard(job)

    def _load_once(self) -> Any:
        with self._loading:
            if self._server is None:
                self._server = _load_server(self._setup)
            return self._server

    def close(self) -> None:
        """Stop all jobs and free the memory."""
        self._closing = True
        for _ in self._threads:
            self._jobs.put(None)
        for job in tuple(self._at_work):
            job.is_cancelled = True
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT_SECONDS)
        if _forked:
            self.leak_weights()
        self._server = None

    def leak_weights(self) -> None:
        """Never free the weights, in a forked child: freeing would wait for threads that exist only in the parent."""
        if self._server is not None:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))


def _load_server(setup: BackendOptions) -> Any:
    """Load the weights, which takes a second or more. Raises `ModelError`."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # otherwise idle threads keep a core busy
    xllamacpp: Any = import_module("xllamacpp")  # it has no type hints
    wanted: Any = xllamacpp.CommonParams()
    wanted.model.path = setup.path
    wanted.n_ctx = setup.context_tokens * setup.slots
    wanted.n_parallel = setup.slots
    wanted.n_batch = wanted.n_ubatch = BATCH_TOKENS
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = setup.threads
    wanted.cache_ram_mib = MAX_CACHE_MIB
    wanted.use_jinja = True
    wanted.verbosity = -1  # it would write to standard error
    _restrict_http_server(wanted)
    try:
        return xllamacpp.Server(wanted)
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"llama.cpp cannot load {setup.path!r}: the file is damaged or too new for this version, or there is "
            f"not enough memory ({error}). Try `pip install --upgrade xllamacpp`"
        ) from error


def _restrict_http_server(wanted: Any) -> None:
    """Restrict the HTTP server that llama.cpp always starts to loopback, a random port and a random key."""
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_threads_http = 1
    wanted.api_keys = [os.urandom(16).hex()]
    wanted.ui = False


def get_default_thread_count() -> int:
    """Return the default number of threads for llama.cpp: the available cores, up to `MAX_THREADS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_THREADS)


# -- the backends of this process -------------------------------------------------------------------------------------

_backends: dict[BackendOptions, LlamaBackend] = {}
_lock = threading.Lock()
_watching = False
_forked = False
"""True in a child process of one that has used llama.cpp."""


def get_shared_backend(options: BackendOptions) -> LlamaBackend:
    """Return this process's llama.cpp backend with these options; it is created at the first call."""
    with _lock:
        _register_process_hooks()
        if options not in _backends:
            _backends[options] = LlamaBackend(options)
        return _backends[options]


def _register_process_hooks() -> None:
    """Register hooks that close the backends at exit, and reset them in a forked child."""
    global _watching  # noqa: PLW0603 - once per process
    if not _watching:
        import atexit

        atexit.register(close_all_backends)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_reset_after_fork)
        _watching = True


def close_all_backends() -> None:
    """Close all llama.cpp backends of this process. A later request loads its weights again."""
    with _lock:
        backends = list(_backends.values())
        _backends.clear()
    for backend in backends:
        backend.close()


def _reset_after_fork() -> None:
    """Drop the parent's backends in a forked child.

    The threads of llama.cpp do not exist in the child, but at exit it would wait for them forever.
    """
    global _lock, _forked  # noqa: PLW0603 - a thread of the parent may have locked it
    _lock = threading.Lock()
    for backend in _backends.values():
        backend.leak_weights()
    _backends.clear()
    if not _forked:
        _forked = True
        import ctypes

        libc = ctypes.CDLL(None)
        if hasattr(libc, "on_exit"):  # glibc: calls `_exit` with the status, after Python has ended
            libc.on_exit(libc._exit, None)  # noqa: SLF001 - its name
