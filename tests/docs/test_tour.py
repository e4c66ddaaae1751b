"""Each Python block of the tour can be pasted into the interactive prompt of `python -m asyncio`.

The prompt of Python 3.12 reads a paste line by line: a blank line ends an indented block, and a line without
indentation inside one is a syntax error.
"""

import ast
import asyncio
import code
import contextlib
import inspect
import io
import re
import types

import pytest

from tests.docs.pages import ROOT, Reading, blocks_of, compare

TOUR = ROOT / "docs" / "tour.md"
EXPECTED = re.compile(r"^\s*#> ?(.*)$", re.MULTILINE)


class Prompt(code.InteractiveConsole):
    """The prompt of `python -m asyncio` before Python 3.13: one line at a time, with `await` at the top level."""

    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__({"__name__": "__console__", "__builtins__": __builtins__})
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.errors: list[str] = []
        self._runner = runner

    def runcode(self, code: types.CodeType) -> None:
        try:
            value = types.FunctionType(code, self.locals)()
            if inspect.iscoroutine(value):
                self._runner.run(value)
        except Exception:  # noqa: BLE001 - as a prompt does: print any error, and read the next line
            self.showtraceback()

    def write(self, data: str) -> None:
        self.errors.append(data)

    def paste(self, text: str) -> list[str]:
        """Type each line of a block, then one more Enter, and return the printed lines."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            for line in [*text.splitlines(), ""]:
                self.push(line)
        return output.getvalue().splitlines()


def test_every_block_can_be_pasted_into_the_interactive_prompt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Reading(TOUR, tmp_path) as programs, asyncio.Runner() as runner:
        prompt = Prompt(runner)
        for block in blocks_of(TOUR):
            if block.language == "python" and not block.file:
                printed = prompt.paste(block.text)
                assert prompt.errors == [], block.place
                compare(printed, EXPECTED.findall(block.text), block.place)
            else:
                programs.run(block)


@pytest.mark.parametrize(
    "text",
    ["def f():\n    a = 1\n\n    return a\n", "for each in (1, 2):\n    print(each)\nprint('end')\n"],
)
def test_a_block_that_cannot_be_pasted_is_noticed(text):
    with asyncio.Runner() as runner:
        prompt = Prompt(runner)
        prompt.paste(text)
    assert "Error" in "".join(prompt.errors)


def test_await_works_at_the_prompt():
    with asyncio.Runner() as runner:
        prompt = Prompt(runner)
        assert prompt.paste("import asyncio\nprint(await asyncio.sleep(0, 'slept'))") == ["slept"]
        assert prompt.errors == []
