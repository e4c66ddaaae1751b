"""Every piece of code in the documentation runs, and prints what the page says it prints."""

from textwrap import dedent

import pytest

from perdure._models import registry
from tests.docs.pages import PAGES, Block, Reading, blocks_of, name_of

RUNNABLE = {"python", "console"}
OTHERS = {"text", "sh", "toml"}
"""Languages of blocks that are there to be read."""
SIGNATURES = "py"
"""Signatures, which cannot be run; the reference alone has them."""


def runnable(page) -> list[Block]:
    return [block for block in blocks_of(page) if block.language in RUNNABLE and block.not_run is None]


def mark_packages(page):
    """The page as a parameter of a test, with the packages that its code needs and only `.venv` has."""
    is_program = "code_mode(" in page.read_text(encoding="utf-8")
    return pytest.param(page, marks=[pytest.mark.packages("pydantic_monty")] if is_program else [], id=name_of(page))


@pytest.mark.parametrize("page", [mark_packages(page) for page in PAGES if runnable(page)])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Reading(page, tmp_path) as reading:
        for block in runnable(page):
            reading.run(block)


def test_a_block_that_is_not_run_says_why():
    silent = [block.place for page in PAGES for block in blocks_of(page) if block.not_run == ""]
    assert silent == []


def test_every_block_names_a_known_language():
    """A block without one, or with a misspelt one, would never be run."""
    unknown = [
        f"{block.place}: {block.language!r}"
        for page in PAGES
        for block in blocks_of(page)
        if block.language not in RUNNABLE | OTHERS | ({SIGNATURES} if "reference" in page.parts else set())
        if block.language or "docs" in page.parts
    ]
    assert unknown == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("print('one')\n#> two", "prints something else"),
        ("print('one')", "prints something else"),
        ("import asyncio\nawait asyncio.sleep(0)\nprint(1)\n#> 2", "prints something else"),
    ],
)
def test_a_block_that_prints_something_else_is_noticed(tmp_path, text, complaint):
    block = Block(PAGES[0], 1, "python", "", text, "")
    with Reading(PAGES[0], tmp_path) as reading, pytest.raises(AssertionError, match=complaint):
        reading.run(block)


def test_a_provider_and_a_price_that_a_page_registers_are_gone_after_the_page(tmp_path):
    text = """
        from perdure.models import Price
        from perdure.models import register, set_price
        register("the page's own", print)
        set_price("the page's own", "small", Price(input_usd=1.0, output_usd=1.0))
        """
    before = registry.providers()
    with Reading(PAGES[0], tmp_path) as reading:
        reading.run(Block(PAGES[0], 1, "python", "", dedent(text), ""))
        assert "the page's own" in registry.providers()
    assert registry.providers() == before
    assert registry.price_of("the page's own", "small") is None


def test_a_command_that_prints_something_else_is_noticed(tmp_path):
    with Reading(PAGES[0], tmp_path) as reading:
        reading.run(Block(PAGES[0], 1, "python", "hello.py", "print('hello')", ""))
        reading.run(Block(PAGES[0], 1, "console", "", "$ python hello.py\nhello\n", ""))
        with pytest.raises(AssertionError, match="prints something else"):
            reading.run(Block(PAGES[0], 1, "console", "", "$ python hello.py\ngoodbye\n", ""))
