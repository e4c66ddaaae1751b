"""The tools that need no key and no network, used by an agent."""

import pytest

from perdure import Agent, Status, ToolError
from perdure._tools.basic import format_time_in_zone
from perdure.permissions import Verdict, allow_all
from perdure.testing import FakeClock
from perdure.tools import basic_tools


@pytest.fixture
def session(tmp_path):
    return Agent("demo", tools=basic_tools(tmp_path, clock=FakeClock(start=0.0)), permission=allow_all).session()


async def test_the_time_is_told_in_a_zone(session):
    result = await session.call("now", {"zone": "Europe/Oslo"})
    assert result.text == "Thursday, 1970-01-01 01:00:00 CET (UTC+0100)"
    assert "UTC" in (await session.call("now", {})).text


@pytest.mark.parametrize(("city", "zone"), [("Tokyo", "JST"), ("new york", "EST"), ("Asia/Tokyo", "JST")])
def test_a_city_means_its_zone(city, zone):
    assert f" {zone} (UTC" in format_time_in_zone(city, 0.0)


async def test_an_expression_is_calculated(session):
    assert (await session.call("calculate", {"expression": "17 * 23"})).text == "391"
    assert (await session.call("calculate", {"expression": "1 / 0"})).status is Status.ERROR


async def test_a_file_is_written_and_read_below_the_folder(session, tmp_path):
    assert (await session.call("write_text", {"path": "a.txt", "text": "hello"})).status is Status.OK
    assert (await session.call("read_text", {"path": "a.txt"})).text == "hello"
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "hello"


async def test_only_writing_needs_permission_and_has_an_effect(tmp_path):
    tools = {tool.name: tool for tool in basic_tools(tmp_path)}
    assert {name for name, tool in tools.items() if tool.permission} == {"write_text"}
    assert {name for name, tool in tools.items() if tool.effect != "read"} == {"write_text"}
    result = await Agent("demo", tools=basic_tools(tmp_path)).session().call("write_text", {"path": "a", "text": "b"})
    assert result.status is Status.DENIED
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("zone", ["", "Europe", "Atlantis", "../../etc/passwd", "\0", "\ud800", "x" * 5000])
def test_a_zone_that_is_not_there_is_named(zone):
    with pytest.raises(ToolError, match="there is no time zone"):
        format_time_in_zone(zone, 0.0)


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 17 * 23? Use the calculator.", "391"),
        ("What date and time is it now?", "UTC"),
        ('Write "hello" to the text file hello.txt', "wrote 5 bytes"),
        ("Read the text file there.txt", "I am here"),
    ],
)
async def test_the_demonstration_model_finds_its_way_to_each(tmp_path, prompt, answer):
    (tmp_path / "there.txt").write_text("I am here", encoding="utf-8")
    outcome = await Agent("demo", tools=basic_tools(tmp_path), permission=allow_all).run(prompt)
    assert answer in outcome.text


async def test_a_link_that_changes_after_permission_was_given_leads_nowhere(tmp_path):
    (tmp_path / "drafts").mkdir()
    (tmp_path / "other").mkdir()

    def swap(requests):
        (tmp_path / "drafts").rmdir()
        (tmp_path / "drafts").symlink_to("other")
        return [Verdict(allow=True)] * len(requests)

    session = Agent("demo", tools=basic_tools(tmp_path), permission=swap).session()
    result = await session.call("write_text", {"path": "drafts/a.txt", "text": "b"})
    assert (result.status, "has changed since permission was given" in result.text) == (Status.ERROR, True)
    assert not [*(tmp_path / "other").iterdir()]


async def test_what_is_no_path_is_refused_after_it_was_allowed(session):
    result = await session.call("write_text", {"path": "a\0b", "text": "c"})
    assert "it is no path of a file" in result.text


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Olso", "did you mean 'Europe/Oslo' or "),
        ("0" * 100, "write it like 'Europe/Oslo'"),
    ],
)
def test_a_zone_that_is_not_there_is_shown_with_a_hint(zone: str, hint: str) -> None:
    with pytest.raises(ToolError) as raised:
        format_time_in_zone(zone, 0.0)
    text = str(raised.value)
    assert text.startswith(f"there is no time zone {zone[:60]!r}: {hint}")
    assert text.count(" or ") == (2 if "/" in zone else 0)
