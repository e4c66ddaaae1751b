"""The lock of a file that threads write to: for as long as they like, or for a moment on the thread of an event loop.

The handler of a signal may raise on the main thread after any call. A lock that is acquired by a call, and released in
a `finally`, may then stay locked for ever. `with` on one of Python's own locks has no place for that: so that is how
the main thread acquires it, and it never waits for a thread that does more than set a flag.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager


class DirectWriteLock:
    """Lock of a file for threads, which may have it for long, and for writes on the thread of an event loop.

    Such a write looks at `is_free` first, then enters `moment`, and does nothing unless `is_free_for_this_write`.
    """

    def __init__(self) -> None:
        self.moment = threading.Lock()
        """Entered, with `with` alone, for a write that does not wait for anything."""
        self.is_free_for_this_write = True
        """True, for who is in `moment`, if no thread has the lock."""
        self._threads = threading.Lock()

    @property
    def is_free(self) -> bool:
        """True if a write would probably not have to wait."""
        return self.is_free_for_this_write and not self.moment.locked()

    @contextmanager
    def hold(self) -> Generator[None]:
        """Context manager: have the lock on a thread that no signal handler interrupts: any but the main thread."""
        with self._threads:
            with self.moment:
                self.is_free_for_this_write = False
            try:
                yield
            finally:
                self.is_free_for_this_write = True
