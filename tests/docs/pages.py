"""The pages of the documentation, as the tests of this folder read and run them.

A page's `python` blocks run in order, in one namespace and one event loop, so a block may build on those before it.

- `await` may stand at the top level, as in a notebook or `python -m asyncio`.
- What a block prints must be what its `#>` comments say, line by line.
- `python file=NAME` is not run but written to that file, for a `console` block that says `$ python NAME` and shows its
  output.
- `<!-- not run: REASON -->` in front of a block keeps it from being run.
"""

import ast
import asyncio
import contextlib
import functools
import inspect
import io
import itertools
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self
from unittest import mock

from markdown_it import MarkdownIt
from markdown_it.token import Token

from perdure._models import registry
from perdure._models.catalogue import prices

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_NOT_RUN = re.compile(r"<!-- not run: *(.*?) *-->")
_EXPECTED = re.compile(r"^\s*#> ?(.*)$", re.MULTILINE)
_SECONDS = 50  # on a machine that many share; a test may take a minute


def name_of(page: Path) -> str:
    """A page as people speak of it."""
    return page.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    """Where its fence stands, from 1."""
    language: str
    file: str
    """The file that it is to be written to, if any."""
    text: str
    comment: str
    """The HTML comment just in front of it, if any."""

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Why it must not be run; `None` when it is."""
        match = _NOT_RUN.search(self.comment)
        return match[1] if match else None


@functools.cache
def tokens_of(page: Path) -> list[Token]:
    """The page as markdown."""
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    comment = ""
    for token in tokens_of(page):
        if token.type == "fence":
            language, _, options = token.info.partition(" ")
            file = options.removeprefix("file=") if options.startswith("file=") else ""
            found.append(Block(page, (token.map or [0])[0] + 1, language, file, token.content, comment))
        comment = token.content if token.type == "html_block" else ""
    return found


def links_of(page: Path) -> Iterator[str]:
    """Where the links of a page lead."""
    for token in tokens_of(page):
        for child in token.children or []:
            if child.type == "link_open":
                yield str(child.attrs["href"])


@functools.cache
def anchors_of(page: Path) -> set[str]:
    """The names under which the headings of a page can be linked."""
    tokens = tokens_of(page)
    titles = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


class Reading:
    """Runs the blocks of one page as a reader would, from top to bottom, in a folder of their own.

    What a page changes for the whole process (providers, prices, variables) is as before afterwards: a reader's ends.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self._folder = folder
        self._module = types.ModuleType("page_" + re.sub(r"\W", "_", name_of(page)))
        self._runner = asyncio.Runner()
        self._restored = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for shared in (registry._factories, prices._prices_set, os.environ):
            self._restored.enter_context(mock.patch.dict(shared))
        sys.modules[self._module.__name__] = self._module  # types that are defined in a block are looked up there
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()
        self._restored.close()
        del sys.modules[self._module.__name__]

    def run(self, block: Block) -> None:
        """Run a block, and hold what it prints against what the page says."""
        if block.language == "python" and block.file:
            (self._folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            compare(self._printed(block), _EXPECTED.findall(block.text), block.place)
        elif block.language == "console":
            self._run_commands(block)

    def _printed(self, block: Block) -> list[str]:
        source = "\n" * block.line + block.text
        code = compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if code.co_flags & inspect.CO_COROUTINE:
                self._runner.run(self._bounded(code))
            else:
                exec(code, self._module.__dict__)
        return output.getvalue().splitlines()

    async def _bounded(self, code: types.CodeType) -> None:
        async with asyncio.timeout(_SECONDS):
            await eval(code, self._module.__dict__)

    def _run_commands(self, block: Block) -> None:
        for command, expected in commands_in(block):
            program, *arguments = command.split()
            assert program == "python", f"{block.place}: only `$ python FILE` can be run, not {command!r}"
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            printed = done.stdout.splitlines() + (["Killed"] if done.returncode == -9 else [])
            compare(printed, expected, f"{block.place}: `{command}`")


def compare(printed: list[str], expected: list[str], what: str) -> None:
    """Complain, with both, when something else was printed than the page says."""
    if printed != expected:
        shown = "\n  ".join(["", *printed, "where the page says", *expected])
        raise AssertionError(f"{what} prints something else:{shown}")


def commands_in(block: Block) -> list[tuple[str, list[str]]]:
    """Each command of a console block with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            assert found, f"{block.place}: a console block begins with a command, `$ python FILE`"
            found[-1][1].append(line)
    return found
