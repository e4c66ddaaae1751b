"""scripts/pictures: what is drawn is what runs do, the pictures in docs are current, and a screen is drawn as it is."""

import asyncio
import re
from xml.etree import ElementTree as ET

import pytest

from perdure import tool
from perdure.events import EVENTS
from perdure.testing import ScriptedModel, call
from scripts.pictures import __main__ as program
from scripts.pictures import event_tree, run_sequence
from scripts.pictures.__main__ import IMAGES
from scripts.pictures.event_tree import TreeLine, parse_tree
from scripts.pictures.terminal_screen import BACKGROUND, FOREGROUND, NAMED, Cell, Style, draw_screen, parse_screen
from tests.docs.pages import PAGES, ROOT

SVG = "{http://www.w3.org/2000/svg}"


def texts_of(svg: str) -> dict[str, dict[str, str]]:
    """The texts of a picture, each with its attributes."""
    return {element.text or "": element.attrib for element in ET.fromstring(svg).iter(f"{SVG}text")}


# -- the pictures in docs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["event-tree", "run"])
def test_a_picture_in_docs_is_what_its_program_draws(name):
    drawn = program.DRAWN[name]()
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == drawn, f"draw it again: python -m scripts.pictures {name}"


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_a_drawn_picture_is_well_formed_described_and_loads_nothing(path):
    text = path.read_text("utf-8")
    root = ET.fromstring(text)
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    assert re.findall(r"https?://[^\"\s]+|url\([^)]*\)|<script|<image", text) == ["http://www.w3.org/2000/svg"]


def test_every_picture_is_shown_on_a_page_with_a_text_for_those_who_do_not_see_it():
    shown: dict[str, str] = {}
    for page in PAGES:
        for alternative, place in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8")):
            shown[(page.parent / place).resolve().relative_to(ROOT).as_posix()] = alternative
    assert sorted(shown) == sorted(path.relative_to(ROOT).as_posix() for path in IMAGES.iterdir())
    assert [place for place, alternative in shown.items() if len(alternative.split()) < 5] == []


def test_an_unknown_picture_is_refused_with_those_that_are_known(capsys):
    assert program.main("cat") == 2
    assert "event-tree" in capsys.readouterr().err


# -- what is drawn -----------------------------------------------------------------------------------------------------


def test_a_tree_has_a_depth_and_a_mark_for_what_is_stored():
    tree = "run_started *\n├─ turn_started\n│  └─ text_delta …\n└─ run_ended (done) *"
    assert parse_tree(tree) == [
        TreeLine(0, "run_started", True),
        TreeLine(1, "turn_started", False),
        TreeLine(2, "text_delta …", False),
        TreeLine(1, "run_ended (done)", True),
    ]


def test_every_meaning_in_the_tree_is_drawn():
    drawn = texts_of(event_tree.draw_picture())
    assert [meaning for meaning in event_tree.MEANINGS.values() if meaning not in drawn] == []


def test_the_sequence_stores_what_a_real_run_stores_in_its_order():
    from perdure import Agent

    @tool
    async def add(n: int) -> str:
        """Add."""
        return str(n)

    async def run() -> list[str]:
        agent = Agent(ScriptedModel(call("add", n=1), "done"), tools=[add])
        session = agent.session("s")
        await session.run("go")
        return [str(entry.event.__struct_config__.tag) for entry in await agent.store.read("s")]

    steps = [step.text for step in run_sequence.STEPS if step.target == "log"]
    drawn = [word for text in steps for word in re.findall(r"\w+", text) if word in EVENTS]
    assert drawn == asyncio.run(run())


# -- the screen of a terminal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "style"),
    [
        ("1", Style(is_bold=True)),
        ("1;2;3;4", Style(is_bold=True, is_faint=True, is_italic=True, is_underlined=True)),
        ("1;2;22", Style()),
        ("3;4;7;23;24;27", Style()),
        ("31", Style(color=NAMED[1])),
        ("97", Style(color=NAMED[15])),
        ("41;102", Style(background=NAMED[10])),
        ("38;5;9", Style(color=NAMED[9])),
        ("38;5;16", Style(color="#000000")),
        ("48;5;231", Style(background="#ffffff")),
        ("38;5;232", Style(color="#080808")),
        ("38;2;1;2;255", Style(color="#0102ff")),
        ("31;41;39;49", Style()),
        ("31;1;0", Style()),
        ("", Style()),
        ("5;999", Style()),
    ],
)
def test_escape_sequences_are_styles(codes, style):
    assert parse_screen(f"\x1b[{codes}mx") == [[Cell(0, "x", style)]]


def test_a_style_goes_on_until_it_is_changed():
    red = Style(color=NAMED[1])
    assert parse_screen("a\x1b[31mb\nc\x1b[0md\n") == [
        [Cell(0, "a", Style()), Cell(1, "b", red)],
        [Cell(0, "c", red), Cell(1, "d", Style())],
    ]


def test_a_wide_character_takes_two_columns():
    assert [cell.column for cell in parse_screen("a港b")[0]] == [0, 1, 3]


def test_links_and_character_sets_are_not_shown():
    assert [cell.text for cell in parse_screen("\x1b]8;;https://example.com\x1b\\a\x1b]8;;\x07\x1b(Bb\x0f")[0]] == [
        "a",
        "b",
    ]


def test_neighbours_of_one_style_are_one_element_at_its_column():
    texts = texts_of(draw_screen("go \x1b[1;32mnow\x1b[0m <b>", 20, "a title", "a text"))
    assert texts["now"]["fill"] == NAMED[2]
    assert texts["now"]["style"] == "font-weight:700"
    assert float(texts["now"]["x"]) > float(texts["go"]["x"])
    assert " <b>" in texts


def test_reversed_cells_swap_their_colours():
    svg = draw_screen("\x1b[7mask", 20, "a title", "a text")
    assert texts_of(svg)["ask"]["fill"] == BACKGROUND
    assert f'height="18" fill="{FOREGROUND}"' in svg
