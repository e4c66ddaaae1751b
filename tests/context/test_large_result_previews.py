"""Results that are too long to be sent."""

import time
from typing import Any

import pytest

from perdure import ConfigError, Image, Text, Tool, ToolCall, ToolContext, ToolResult, tool
from perdure._context.history.long_results import (
    MAX_LINE_CHARACTERS,
    MAX_LINES,
    MAX_READ_CHARACTERS,
    build_preview,
    build_regex_matcher,
    grep_result,
    read_result,
)
from perdure.context import large_results, previewed

LOG = "\n".join(
    f"line {number}: {'ERROR in the mast' if number % 100 == 7 else 'all is well'}" for number in range(5000)
)


class Told(ToolContext[Any]):
    """A context in which one call has a result."""

    def __init__(self, text: str = LOG) -> None:
        self._text = text

    def result_of(self, call_id: str) -> ToolResult | None:
        return ToolResult("c1", "shell", (Text(self._text),)) if call_id == "c1" else None


@tool
def shell() -> str:
    """Runs something."""
    return LOG


def finished(made: Tool[..., Any], result: ToolResult) -> Any:
    return made.finish[-1](ToolCall("c1", "shell"), result)


def test_a_long_result_is_sent_as_its_beginning_and_its_end_with_a_handle():
    result = finished(previewed(shell, 600), ToolResult("c1", "shell", (Text(LOG),)))
    assert result.text == LOG
    assert result.preview.startswith("line 0: all is well\n")
    assert result.preview.endswith("line 4999: all is well")
    assert f"{len(LOG) - 600} of {len(LOG)} characters left out here" in result.preview
    assert 'read_result(call_id="c1", offset=400)' in result.preview
    assert len(result.preview) < 900


def test_reading_on_from_the_offset_in_the_note_leaves_nothing_out():
    shown = build_preview(LOG, "c1", 600)
    rest = read_result(Told(), "c1", 400, 100).content.partition("\n")[2]
    assert LOG.startswith(shown.partition("\n[…")[0] + rest)


@pytest.mark.parametrize(
    "result", [ToolResult("c1", "shell", (Text("short"),)), ToolResult("c1", "shell", (Text(LOG),), preview="mine")]
)
def test_a_short_result_and_one_with_a_preview_of_its_own_stay_as_they_are(result):
    assert finished(previewed(shell, 600), result) is result


def test_media_in_a_long_result_are_named():
    result = finished(previewed(shell, 600), ToolResult("c1", "shell", (Image(name="mast.png"), Text(LOG))))
    assert result.preview.startswith("[image: mast.png]\n")


def test_the_pieces_of_an_extension_leave_the_reading_tools_alone():
    pieces = large_results(600)
    assert pieces.tools == (read_result, grep_result)
    assert [pieces.wrap_tool(each) for each in pieces.tools] == list(pieces.tools)
    assert pieces.wrap_tool(shell).finish


def test_a_part_is_read_with_its_place():
    assert (
        read_result(Told("abcdefghij"), "c1", 2, 3).content == "[characters 2 to 5 of 10; read on with offset=5]\ncde"
    )
    assert (
        read_result(Told("abcdefghij"), "c1", -2, 99).content
        == "[characters 0 to 10 of 10; this is its end]\nabcdefghij"
    )
    assert len(read_result(Told(), "c1", 0, 10**9).content) < MAX_READ_CHARACTERS + 100


def test_there_is_nothing_behind_the_end():
    output = read_result(Told("abc"), "c1", 3)
    assert (output.content, output.is_error) == ("The result has 3 characters; there is nothing from 3 on.", True)


@pytest.mark.parametrize("reading", [read_result, lambda context, call_id: grep_result(context, call_id, "x")])
def test_a_call_that_is_not_there_is_told(reading):
    output = reading(Told(), "c9")
    assert output.is_error
    assert "no result of a call 'c9'" in output.content


def test_lines_are_found_with_their_numbers_and_offsets():
    lines = grep_result(Told(), "c1", "error IN").content.splitlines()
    assert len(lines) == MAX_LINES
    number, _, rest = lines[0].partition(" (offset ")
    offset = int(rest.partition(")")[0])
    assert number == "line 8"
    assert LOG[offset:].startswith("line 7: ERROR in the mast")


def test_a_search_is_bounded():
    lines = grep_result(Told("x" * 50_000 + "\n" + "mast\n" * 200), "c1", "[mx]", regex=True).content.splitlines()
    assert lines[-1] == "(151 more lines; look for something rarer)"
    assert max(map(len, lines)) < MAX_LINE_CHARACTERS + 50
    assert "mast" in grep_result(Told("x" * 5_000 + "mast" + "x" * 5_000), "c1", "mast").content


def test_patterns_are_text_unless_it_is_said_that_they_are_regular_expressions():
    assert grep_result(Told("a.c\nabc"), "c1", "a.c").content == "line 1 (offset 0): a.c"
    assert len(grep_result(Told("a.c\nabc"), "c1", "a.c", regex=True).content.splitlines()) == 2
    assert grep_result(Told("a.c"), "c1", "whale").content == "No line has it."
    assert grep_result(Told("a.c"), "c1", "").is_error


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=x)y", "(a{1,1000}){1,1000}"])
def test_a_pattern_that_cannot_be_used_is_told(pattern):
    output = grep_result(Told(), "c1", pattern, regex=True)
    assert output.is_error
    assert "not a supported regular expression" in output.content


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(.*)*x", "a*a*a*a*a*a*b"])
def test_no_pattern_takes_for_ever(pattern):
    began = time.process_time()
    assert not build_regex_matcher(pattern)("a" * 10_000)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("given", [0, 199, "x", None])
def test_what_cannot_work_is_refused(given):
    with pytest.raises(ConfigError, match="max_characters"):
        large_results(given)
    with pytest.raises(ConfigError, match="max_characters"):
        previewed(shell, given)


def test_a_preview_has_two_thirds_from_the_beginning_and_one_from_the_end():
    text = "".join([f"{number:04}" for number in range(300)])
    note = (
        '[… 600 of 1200 characters left out here. All of it is kept: read_result(call_id="c1", offset=400) reads on, '
        'grep_result(call_id="c1", pattern="…") searches it …]'
    )
    assert build_preview(text, "c1", 600) == f"{text[:400]}\n{note}\n{text[1000:]}"


def test_a_result_of_exactly_the_limit_is_sent_whole():
    for length, preview in ((600, False), (601, True)):
        result = finished(previewed(shell, 600), ToolResult("c1", "shell", (Text("x" * length),)))
        assert bool(result.preview) is preview


def test_at_least_one_character_is_read():
    assert read_result(Told("abc"), "c1", 1, 0).content == "[characters 1 to 2 of 3; read on with offset=2]\nb"
    assert not read_result(Told("abc"), "c1", 2).is_error
    whole = read_result(Told("x" * MAX_READ_CHARACTERS + "y"), "c1", 0, MAX_READ_CHARACTERS + 1).content
    assert whole.partition("\n")[2] == "x" * MAX_READ_CHARACTERS


def test_of_a_long_line_a_piece_around_the_match_is_shown():
    line = "a" * 500 + "MAST" + "b" * 500
    assert grep_result(Told(line), "c1", "mast").content == f"line 1 (offset 0): …{line[400:700]}…"
    early = "mast" + "b" * 297
    assert grep_result(Told(early), "c1", "mast").content == f"line 1 (offset 0): {early[:300]}…"
    fitting = "mast" + "b" * 296
    assert grep_result(Told(fitting), "c1", "mast").content == f"line 1 (offset 0): {fitting}"


def test_only_the_beginning_of_a_very_long_line_is_searched():
    assert grep_result(Told("x" * 9_996 + "mast"), "c1", "mast").content.startswith("line 1 (offset 0): …")
    assert grep_result(Told("x" * 9_997 + "mast"), "c1", "mast").content == "No line has it."


def test_as_many_lines_as_are_shown_need_no_note_and_one_more_does():
    assert (
        grep_result(Told("mast\n" * MAX_LINES), "c1", "mast").content.splitlines()[-1] == "line 50 (offset 245): mast"
    )
    assert grep_result(Told("mast\n" * (MAX_LINES + 1)), "c1", "mast").content.splitlines()[50:] == [
        "(1 more lines; look for something rarer)"
    ]


def test_the_smallest_limit_can_be_used():
    assert large_results(200).tools
    assert finished(previewed(shell, 200), ToolResult("c1", "shell", (Text(LOG),))).preview


def test_a_result_is_read_from_its_beginning_unless_another_place_is_given():
    assert read_result(Told("abc"), "c1").content == "[characters 0 to 3 of 3; this is its end]\nabc"
    assert read_result(Told("x" * 8_001), "c1").content.startswith("[characters 0 to 8000 of 8001; read on with")
