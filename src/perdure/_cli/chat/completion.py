"""Complete what is typed into the chat, and keep the history of prompts."""

# ruff: noqa: PTH103, PTH120 - pathlib would cost every start milliseconds

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO, Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from perdure._cli.terminal.output import to_one_line

MAX_FILES: Final = 5000
"""Files of the working folder among which `@file` searches."""
MAX_OFFERED: Final = 50
_MENTION: Final = re.compile(r"(?:^|[\s(\[{<\"'])@([^\s\"`@]*)$")
_COMMAND: Final = re.compile(r"/([\w-]*)$")
_ARGUMENT: Final = re.compile(r"/([\w-]+) +(\S*)$")


class ChatCompleter(Completer):
    """Completes commands, skills and files in the input of the chat. Files are listed anew for each `@` typed."""

    def __init__(
        self,
        commands: Mapping[str, str],
        list_skills: Callable[[], Mapping[str, str]],
        list_arguments: Callable[[str], Sequence[str]],
        folder: str = os.curdir,
    ) -> None:
        self._commands = commands
        self._list_skills = list_skills
        self._list_arguments = list_arguments
        self._folder = folder
        self._files: Sequence[str] = ()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what the text before the cursor can be completed to, the best first."""
        del complete_event
        text = document.text_before_cursor
        if found := _MENTION.search(text):
            yield from self._complete_file(found[1])
        elif found := _COMMAND.fullmatch(text):
            for name, about in {**self._list_skills(), **self._commands}.items():
                if name.startswith(found[1].lower()):
                    yield Completion(
                        name, -len(found[1]), display=to_one_line(f"/{name}"), display_meta=to_one_line(about)
                    )
        elif found := _ARGUMENT.fullmatch(text):
            for name in self._list_arguments(found[1]):
                if name.startswith(found[2]):
                    yield Completion(name, -len(found[2]), display=to_one_line(name))

    def _complete_file(self, typed: str) -> Iterable[Completion]:
        if not typed or not self._files:
            self._files = list_mentionable_files(self._folder)
        for path in rank_paths(self._files, typed)[:MAX_OFFERED]:
            quoted = f'"{path}"' if re.search(r"\s", path) else path
            yield Completion(quoted, -len(typed), display=to_one_line(path))


def rank_paths(paths: Iterable[str], typed: str) -> list[str]:
    """Return the paths that match the typed text, best first: at the start of the path, of the file name, or anywhere.

    Letters may also be typed with others left out, as in `smn` for `src/main.py`.
    """
    wanted = typed.lower()
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        low = path.lower()
        name = low.rsplit("/", 1)[-1]
        if low.startswith(wanted):
            rank = 0
        elif name.startswith(wanted):
            rank = 1
        elif wanted in low:
            rank = 2
        elif _has_letters_in_order(low, wanted):
            rank = 3
        else:
            continue
        ranked.append((rank, len(path), path))
    return [path for _, _, path in sorted(ranked)]


def _has_letters_in_order(text: str, letters: str) -> bool:
    place = 0
    for letter in letters:
        place = text.find(letter, place) + 1
        if not place:
            return False
    return True


def list_mentionable_files(folder: str) -> list[str]:
    """Return the relative paths of the files below a folder that `@file` can attach, without files that git ignores."""
    from itertools import islice

    from perdure._io.files.confined_folder import FileRefused
    from perdure._io.files.jail import Jail
    from perdure._io.files.tree_walk import walk_files

    try:
        jail = Jail(folder)
    except (FileRefused, OSError, ValueError):
        return []
    try:
        names = ["/".join(steps) for steps in islice(walk_files(jail, ()), MAX_FILES)]
    finally:
        jail.close()
    return sorted([each for each in names if each.isprintable() and '"' not in each and "`" not in each])


MAX_BYTES: Final = 1_000_000
"""Size of the file from which on its older half is dropped at the next start."""


def open_input_history(path: str) -> History:
    """Open the history of typed prompts, in a file that only its owner can read; in memory if that cannot be used."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "rb+") as file:
            os.fchmod(descriptor, 0o600)
            _drop_older_half(file)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def _drop_older_half(file: BinaryIO) -> None:
    """Keep the later half of a history that has grown too long."""
    data = file.read()
    if len(data) <= MAX_BYTES:
        return
    start = data.find(b"\n# ", len(data) // 2)
    file.seek(0)
    file.write(data[start:] if start >= 0 else b"")
    file.truncate()
