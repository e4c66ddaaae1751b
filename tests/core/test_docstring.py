"""Docstrings in the three common styles say what a function does and what its parameters mean."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._core.schema import docstring as docstrings
from perdure._core.schema.docstring import Docstring, parse_docstring

GOOGLE = """Look up the weather.

    It asks the service twice.
    The second time, it waits.

    Args:
        city (str): The city: without its country.
        days (Callable[[int], str], optional): How many days,
            counted from today.

            Today is the first.
        *names: More of them.

    Returns:
        The weather: as text.

    Raises:
        ValueError: It does not exist.
    """

NUMPY = """Look up the weather.

    Parameters
    ----------
    x, y : int
        The place.

        On a map.
    days
        How many days.
    **options : dict
        More of them.

    Returns
    -------
    str
        The weather.

    Other Parameters
    ----------------
    verbose : bool
        Whether to tell more.
    """

SPHINX = """Look up the weather.

    :param city: The city.
    :type city: str
        or bytes
    :param dict[str, int] days: How many days,
        counted from today.
    :param quiet:
    :returns: The weather.
    :rtype: str
    :raises ValueError: It does not exist.
    """


def test_google_style_is_understood():
    docstring = parse_docstring(GOOGLE)
    assert docstring.parameters == {
        "city": "The city: without its country.",
        "days": "How many days, counted from today. Today is the first.",
        "names": "More of them.",
    }
    assert docstring.summary == "Look up the weather."
    assert docstring.description == (
        "Look up the weather.\n\nIt asks the service twice.\nThe second time, it waits.\n\n"
        "Returns:\n    The weather: as text.\n\nRaises:\n    ValueError: It does not exist."
    )


def test_numpy_style_is_understood():
    docstring = parse_docstring(NUMPY)
    assert docstring.parameters == {
        "x": "The place. On a map.",
        "y": "The place. On a map.",
        "days": "How many days.",
        "options": "More of them.",
        "verbose": "Whether to tell more.",
    }
    assert docstring.description == "Look up the weather.\n\nReturns\n-------\nstr\n    The weather."


def test_sphinx_style_is_understood():
    docstring = parse_docstring(SPHINX)
    assert docstring.parameters == {"city": "The city.", "days": "How many days, counted from today."}
    assert docstring.description == (
        "Look up the weather.\n\n:returns: The weather.\n:raises ValueError: It does not exist."
    )


def test_a_summary_of_two_lines_is_put_on_one():
    assert parse_docstring("Look up\n    the weather.\n\n    More.").summary == "Look up the weather."


@pytest.mark.parametrize("text", [None, "", "  \n "])
def test_no_text_says_nothing(text):
    assert parse_docstring(text) == Docstring("", "", {})


@pytest.mark.parametrize(
    "text",
    [
        "Args: they are explained elsewhere.",
        "Args:\n\nnothing here",
        "Do.\n\nArgs:\n    They are explained elsewhere.\n    city: no more a list",
        "Parameters\nare explained elsewhere",
        "---",
        "Heading\n-------\nText.",
        "Do.\n\nArgs:\ncity: not indented, and so no list",
    ],
)
def test_what_only_resembles_a_section_stays_in_the_description(text):
    assert parse_docstring(text) == Docstring(" ".join(text.partition("\n\n")[0].split()), text, {})


def test_styles_may_be_mixed_and_the_first_description_counts():
    docstring = parse_docstring("Do.\n\n:param a: one\n:param a: two\n\nArgs:\n    a: three\n    b: four")
    assert docstring == Docstring("Do.", "Do.", {"a": "one", "b": "four"})


def test_prose_after_a_numpy_section_stays():
    docstring = parse_docstring("Do.\n\nParameters\n----------\na : int\n    one\n\nAnd that is all.")
    assert docstring == Docstring("Do.", "Do.\n\nAnd that is all.", {"a": "one"})


def test_a_section_in_the_middle_of_a_google_docstring_leaves_no_gap():
    docstring = parse_docstring("Do.\n\nArgs:\n    a: one\n\n\nNotes.")
    assert docstring == Docstring("Do.", "Do.\n\nNotes.", {"a": "one"})


names = st.text("abcxyz_", min_size=1, max_size=8)
words = st.lists(names, min_size=1, max_size=6).map(" ".join)
described = st.dictionaries(names, words, min_size=1, max_size=5)


def google(summary, parameters):
    return f"{summary}.\n\nArgs:\n" + "".join(f"    {name} (int): {text}\n" for name, text in parameters.items())


def numpy(summary, parameters):
    items = "".join(f"{name} : int\n    {text}\n" for name, text in parameters.items())
    return f"{summary}.\n\nParameters\n----------\n{items}"


def sphinx(summary, parameters):
    return f"{summary}.\n\n" + "".join(f":param int {name}: {text}\n" for name, text in parameters.items())


@pytest.mark.parametrize("write", [google, numpy, sphinx])
@given(summary=words, parameters=described)
def test_what_is_written_in_a_style_is_read_from_it(write, summary, parameters):
    assert parse_docstring(write(summary, parameters)) == Docstring(f"{summary}.", f"{summary}.", parameters)


pieces = st.sampled_from(
    [":param a: b", ":param", ":type x: y", "Args:", "Parameters", "-----", "a : int", "a: b", "  a (b): c", "\n", "x"]
)


@given(st.text() | st.lists(pieces | st.text(max_size=5)).map("\n".join))
def test_any_text_can_be_read(text):
    docstring = parse_docstring(text)
    assert docstring.description.startswith(docstring.summary.split(" ")[0])
    assert all(re.fullmatch(r"\w+", name) and said for name, said in docstring.parameters.items())


@given(st.lists(pieces | st.text(max_size=5)).map("\n".join))
def test_a_style_whose_mark_a_text_lacks_would_find_nothing_in_it(text):
    lines = text.splitlines()
    for mark, extract in docstrings._STYLES:
        assert mark in text or extract(lines) == (lines, [])
