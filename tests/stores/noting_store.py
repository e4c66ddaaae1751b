"""A store that notes each operation with what it was given, for tests of the wrappers of stores."""

from typing import Any

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class NotingStore:
    """A store with every optional operation. It does nothing: it notes its calls, and answers what it is told to."""

    identity = "noting"

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answer: Any = None

    def _note(self, name: str, *given: Any, **named: Any) -> Any:
        self.calls.append((name, given, named))
        return self.answer

    def append_now(self, *given: Any, **named: Any) -> Any:
        return self._note("append_now", *given, **named)


def _noted(name: str) -> Any:
    async def operation(self: NotingStore, *given: Any, **named: Any) -> Any:
        return self._note(name, *given, **named)

    return operation


for _name in (
    *("acquire", "release", "holds", "append", "redact", "read", "post", "posts", "list_interrupted", "list", "info"),
    *("delete", "fork", "aclose", "forks", "events", "search", "size", "vacuum", "backup"),
):
    setattr(NotingStore, _name, _noted(_name))
