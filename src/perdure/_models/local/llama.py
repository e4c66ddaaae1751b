"""Run llama.cpp in this process: load weights once, generate on threads, answer chat completions requests."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from queue import SimpleQueue
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from perdure._core.values.error import ModelError
from perdure._io.http.transport import Response

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


_OK, _BAD_REQUEST, _FAILED = 200, 400, 500
_DONE = b"data: [DONE]\n\n"


class InProcessTransport:
    """`Transport` that answers each request with a local model in this process, instead of a server."""

    def __init__(self, setup: BackendOptions) -> None:
        self._setup = setup

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[Response]:  # noqa: ARG002
        """Submit a request to the local model, as an async context manager. Leaving it cancels the request."""
        return _InProcessPost(get_shared_backend(self._setup), body)


class _InProcessPost(AbstractAsyncContextManager["Response"]):
    """Context manager of one request to the backend, which returns its response."""

    def __init__(self, backend: LlamaBackend, body: bytes) -> None:
        self._backend = backend
        self._body = body
        self._job: GenerationJob | None = None

    async def __aenter__(self) -> Response:
        pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._job = GenerationJob(self._body, pieces.put_nowait)
        self._backend.submit(self._job)
        try:
            first = await pieces.get()
        except BaseException:
            self._job.is_cancelled = True
            raise
        return _build_answer(first, pieces)

    async def __aexit__(self, *_: object) -> None:
        if self._job is not None:
            self._job.is_cancelled = True


class _StreamedAnswer:
    """Successful response, streamed as server-sent events."""

    status = _OK
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self, first: bytes | None, pieces: "asyncio.Queue[bytes | Exception | None]") -> None:
        self._first = first
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield each piece of JSON as a server-sent event."""
        piece: bytes | Exception | None = self._first
        while piece is not None:
            if isinstance(piece, Exception):
                raise ModelError(f"llama.cpp failed: {piece}") from piece
            yield b"data: %b\n\n" % piece
            piece = await self._pieces.get()
        yield _DONE

    async def read(self, most_bytes: int) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])[:most_bytes]


class _ErrorAnswer:
    """Response with an error status and a JSON body."""

    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece."""
        yield self._body

    async def read(self, most_bytes: int) -> bytes:
        """Return the body."""
        return self._body[:most_bytes]


def _build_answer(first: bytes | Exception | None, pieces: "asyncio.Queue[bytes | Exception | None]") -> Response:
    """Build the response from its first piece; an error gets the form of a server's error response."""
    if isinstance(first, ModelError):
        raise first
    if isinstance(first, Exception):
        status = _BAD_REQUEST if isinstance(first, ValueError) else _FAILED
        return _ErrorAnswer(status, msgspec.json.encode({"error": {"message": str(first), "code": status}}))
    if first is not None and first.startswith(b'{"error"'):
        return _ErrorAnswer(_parse_status(first), first)
    return _StreamedAnswer(first, pieces)


def _parse_status(body: bytes) -> int:
    """Return the HTTP status that an error body contains."""
    try:
        code = msgspec.json.decode(body)["error"]["code"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return _FAILED
    return code if isinstance(code, int) else _FAILED
