"""A skill, its texts, and what it says when it is called by name."""

import asyncio
import os

import pytest

from perdure import ConfigError, tool
from perdure._context.skills.loading import read_skill
from perdure._context.skills.skill import resolve_skill_prompt
from perdure.context import Resource, Skill, Skills, format_skill_body


def rope(**more):
    return Skill(**{"name": "rope", "description": "Knots.", "body": "Tie it.", **more})


async def from_async() -> str:
    await asyncio.sleep(0)
    return "from async"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("words", "words"),
        (Resource("words"), "words"),
        (Resource(lambda: "from a function"), "from a function"),
        (Resource(from_async), "from async"),
        (Resource(lambda: from_async()), "from async"),  # noqa: PLW0108 - not known to be async
    ],
)
async def test_a_resource_is_text_or_a_function_that_returns_it(given, text):
    assert await rope(resources={"x": given}).read("x") == text
    assert await rope(sections={"x": given}).read("x") == text


async def test_a_function_is_called_when_its_resource_is_read_and_not_before():
    calls = []

    def load() -> str:
        calls.append(1)
        return "read"

    skill = rope(resources={"x": Resource(load)})
    assert Skills([skill]).catalogue()
    assert calls == []
    assert await skill.read("x") == "read"
    assert calls == [1]


async def test_a_function_has_to_return_text():
    with pytest.raises(ConfigError, match="has to return the text of the resource"):
        await rope(resources={"x": Resource(lambda: 5)}).read("x")  # type: ignore[arg-type, return-value]


async def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(ConfigError, match=r"'rope' has no section or resource 'x'; it has 'faq', 'assets/a.txt'"):
        await rope(sections={"faq": ""}, resources={"assets/a.txt": ""}).read("x")
    with pytest.raises(ConfigError, match="it has nothing"):
        await rope().read("x")


@pytest.mark.parametrize("name", ["references/knots.md", "./references/knots.md", "references/../references/knots.md"])
async def test_a_name_may_be_written_as_a_path(name):
    assert await rope(resources={"references/knots.md": "Bowline."}).read(name) == "Bowline."


async def test_a_section_may_be_called_by_its_file():
    assert await rope(sections={"faq": "Why?"}).read("faq.md") == "Why?"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (None, "Tie it."),
        ("", "Tie it."),
        ("two ropes", "Tie it.\n\nArguments:\ntwo ropes"),
        ({"ropes": 2}, 'Tie it.\n\nArguments:\n{\n  "ropes": 2\n}'),
        ([1], "Tie it.\n\nArguments:\n[\n  1\n]"),
        (0, "Tie it.\n\nArguments:\n0"),
        (False, "Tie it.\n\nArguments:\nfalse"),
    ],
)
def test_arguments_come_after_the_body(arguments, text):
    assert format_skill_body(rope(), arguments) == text


def test_arguments_that_json_cannot_hold_are_refused():
    with pytest.raises(ConfigError, match="give text, or a value that JSON can hold"):
        format_skill_body(rope(), object())


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "Rope"},
        {"name": "a--b"},
        {"name": "-a"},
        {"name": "a" * 65},
        {"name": "../x"},
        {"name": "a\n"},
        {"name": None},
        {"description": ""},
        {"description": 5},
        {"body": None},
        {"hidden": "yes"},
        {"priority": "high"},
        {"sections": ["faq"]},
        {"sections": {"faq": 5}},
        {"resources": {5: "x"}},
        {"resources": {"": "x"}},
        {"tools": "hammer"},
        {"tools": [print]},
        {"tools": 5},
        {"license": 5},
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_where_it_is_described(wrong):
    with pytest.raises(ConfigError):
        rope(**wrong)


@pytest.mark.parametrize("wrong", [{"load": 5}, {"load": "x", "description": 5}], ids=str)
def test_a_resource_that_cannot_work_is_refused(wrong):
    with pytest.raises(ConfigError):
        Resource(**wrong)


def test_two_tools_of_one_skill_have_two_names():
    @tool
    def splice() -> str:
        """Splice."""
        return "spliced"

    assert rope(tools=[splice]).tools == (splice,)
    with pytest.raises(ConfigError, match="two tools are called 'splice'"):
        rope(tools=[splice, splice])


# -- from a directory --------------------------------------------------------------------------------------------------


async def test_a_directory_becomes_a_skill_with_sections_and_resources(ground):
    text = (
        "---\nname: rope\ndescription: >\n  Knots\n  and splices.\nlicense: MIT\ncompatibility: needs rope\n"
        "allowed-tools: Bash(git:*) Read\nmetadata:\n  author: bosun\n  priority: 3\nhidden: yes\n---\n\n"
        "# Rope\n\nTie it.\n"
    )
    directory = ground.user_skill(
        "rope", text, faq_md="Why?", scripts__tie_py="pass", references__deep__knots_md="Bowline.", other__x_md="no"
    )
    (directory / "data.json").write_text("{}")
    (directory / "assets").mkdir()
    (directory / "assets/logo.png").write_bytes(b"\x89PNG\xff")
    skill = read_skill(os.fspath(directory))
    assert (skill.name, skill.description, skill.body) == ("rope", "Knots and splices.", "# Rope\n\nTie it.")
    assert (skill.license, skill.compatibility, skill.allowed_tools) == ("MIT", "needs rope", "Bash(git:*) Read")
    assert (skill.metadata["author"], skill.priority, skill.hidden) == ("bosun", 3, True)
    assert list(skill.sections) == ["faq"]
    assert list(skill.resources) == ["assets/logo.png", "references/deep/knots.md", "scripts/tie.py"]
    assert await skill.read("faq") == "Why?"
    assert await skill.read("references/deep/knots.md") == "Bowline."
    with pytest.raises(ConfigError, match=r"'assets/logo.png' is not text: its path is "):
        await skill.read("assets/logo.png")
    assert (skill.path, skill.source, skill.problems) == (os.fspath(directory), "user", ())


async def test_a_resource_is_read_when_it_is_asked_for_and_within_the_directory(ground):
    directory = ground.user_skill("rope", references__a_md="old")
    (ground.outside / "secret.md").write_text("secret")
    (directory / "references/link.md").symlink_to(ground.outside / "secret.md")
    (directory / "references/alias.md").symlink_to("a.md")
    skill = read_skill(os.fspath(directory))
    assert list(skill.resources) == ["references/a.md", "references/alias.md"]
    (directory / "references/a.md").write_text("new\x1b[2J")
    assert await skill.read("references/alias.md") == "new"
    (directory / "references/a.md").unlink()
    (directory / "references/a.md").symlink_to(ground.outside / "secret.md")
    with pytest.raises(ConfigError, match="is outside of"):
        await skill.read("references/a.md")
    for name in ("../../../outside/secret.md", "/etc/passwd", "references/link.md"):
        with pytest.raises(ConfigError, match="has no section or resource"):
            await skill.read(name)


async def test_a_link_inside_a_trusted_directory_is_followed(ground):
    directory = ground.skill("rope", references__a_md="text")
    (directory / "references/alias.md").symlink_to("a.md")
    (skill,) = ground.load().untrusted
    assert await skill.read("references/alias.md") == "text"


def test_very_many_files_are_told_and_the_skill_is_used(ground, monkeypatch):
    monkeypatch.setattr("perdure._context.skills.files.MAX_FILES", 3)
    ground.user_skill("rope", a_md="", b_md="", c_md="", d_md="")
    skills = ground.load()
    assert skills.names == ("rope",)
    assert "not all of its files are known" in skills.problems[0]


def test_a_file_whose_name_nobody_can_see_is_no_resource(ground):
    directory = ground.user_skill("rope", references__a_md="")
    (directory / "references" / "b\x1b[2J.md").touch()
    (directory / "references" / "c\u202e.md").touch()
    assert list(read_skill(os.fspath(directory)).resources) == ["references/a.md"]


# -- a function instead of a body --------------------------------------------------------------------------------------


def knots(handler):
    return Skill(name="knots", description="Knots for a load.", handler=handler)


async def later_text(arguments):
    return f"later: {arguments}"


@pytest.mark.parametrize(
    ("handler", "arguments", "text"),
    [
        (lambda arguments: f"A bowline for {arguments}.", "80 kg", "A bowline for 80 kg."),
        (lambda arguments: f"{arguments['load']} kg", {"load": 80}, "80 kg"),
        (lambda arguments: f"[{arguments}]", None, "[]"),
        (later_text, "x", "later: x"),
        (lambda arguments: later_text(arguments.upper()), "y", "later: Y"),
    ],
)
async def test_the_handler_of_a_skill_makes_its_text_from_the_arguments(handler, arguments, text):
    assert await resolve_skill_prompt(knots(handler), arguments) == text


async def test_a_skill_without_a_handler_has_its_body():
    assert await resolve_skill_prompt(rope(), "x") == format_skill_body(rope(), "x")


async def test_a_handler_that_returns_no_text_is_told():
    with pytest.raises(ConfigError, match=r"function .* returned 5: it has to return the text of the skill"):
        await resolve_skill_prompt(knots(lambda _arguments: 5))


@pytest.mark.parametrize(
    ("given", "told"), [({"handler": 5}, "handler=5"), ({"handler": print, "body": "x"}, "body='x'")]
)
def test_a_skill_has_a_body_or_a_function(given, told):
    with pytest.raises(ConfigError, match=told):
        Skill(name="knots", description="Knots.", **given)
