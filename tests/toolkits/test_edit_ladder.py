"""An edit finds the text that the model means, says how, and refuses whatever could mean something else."""

# ruff: noqa: E501, PLR0917 - a case is a line

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure._tools.files.edits import EditRefused, apply_edit, find_placeholder
from perdure.tools import TextEdit

PYTHON = """\
import os

def first(a, b):
    total = a + b
    return total


class Boat:
    def sail(self):
        if self.wind:
            return "away"
        return 'home'

    def moor(self):
        return 'home'
"""
TABS = "func main() {\n\tx := 1\n\tif x > 0 {\n\t\tprintln(x)\n\t}\n}\n"
PROSE = "It\u2019s \u201cfine\u201d \u2014 really.\nAnother\u00a0line\nThe end\n"
BLANKS = "one  \ntwo\t\nthree\n\nfour   \n"

FOUND = [
    # (rung, file, old, new, expected part of the new file, expected absent part)
    ("exact", PYTHON, "import os\n", "import sys\n", "import sys\n\ndef first", "import os"),
    ("exact", PYTHON, "total = a + b", "total = b + a", "    total = b + a\n    return total", "a + b"),
    ("exact", PYTHON, "    return total\n", "", "a + b\n\n\nclass", "return total"),
    ("exact", PYTHON, "a + b\n    return total", "a\n    return b", "total = a\n    return b\n", "return total"),
    ("exact", PYTHON, "Boat", "Ship", "class Ship:", "Boat"),
    ("exact", PYTHON, 'self.wind:\n            return "away"', "True:\n            pass", "if True:\n            pass", "away"),
    ("exact", TABS, "\tx := 1\n", "\tx := 2\n", "\tx := 2\n", ":= 1"),
    ("exact", TABS, "println(x)", "print(x)", "\t\tprint(x)\n", "println"),
    ("exact", PROSE, "\u201cfine\u201d", '"fine"', 'It\u2019s "fine" \u2014', "\u201c"),
    ("exact", BLANKS, "one  \n", "1\n", "1\ntwo", "one"),
    ("exact", "a\n\n\n\nb\n", "\n\n\n\n", "\n\n", "a\n\nb", "\n\n\n"),
    ("exact", "x = 1", "x = 1", "x = 2", "x = 2", "x = 1"),
    ("exact", "a\\nb\n", "a\\nb", "c", "c\n", "a"),
    ("trailing blanks", BLANKS, "one\ntwo\n", "1\n2\n", "1\n2\nthree", "one"),
    ("trailing blanks", BLANKS, "one\ntwo", "1\n2", "1\n2\nthree", "one"),
    ("trailing blanks", BLANKS, "three \n\nfour", "3\n\n4", "two\t\n3\n\n4\n", "four"),
    ("trailing blanks", BLANKS, "two \nthree", "2\n3", "one  \n2\n3\n", "two"),
    ("trailing blanks", PYTHON, "import os   \n", "import sys\n", "import sys\n\ndef", "import os"),
    ("trailing blanks", PYTHON, "    total = a + b \n    return total ", "    return a + b", "b):\n    return a + b\n", "total"),
    ("trailing blanks", TABS, "\tx := 1  \n\tif x > 0 {", "\tif true {", "main() {\n\tif true {", "x := 1"),
    ("indentation", PYTHON, "total = a + b\nreturn total\n", "return a + b\n", "b):\n    return a + b\n\n", "total"),
    ("indentation", PYTHON, "total = a + b\nreturn total", "return a + b", "b):\n    return a + b\n\n", "total"),
    ("indentation", PYTHON, 'if self.wind:\n    return "away"', "if self.wind:\n    return 1", "        if self.wind:\n            return 1\n", "away"),
    ("indentation", PYTHON, 'def sail(self):\n    if self.wind:\n        return "away"', "def sail(self):\n    if self.oar:\n        return 2", "    def sail(self):\n        if self.oar:\n            return 2\n", "wind"),
    ("indentation", PYTHON, "      total = a + b\n      return total", "      x = 1\n      return x", "    x = 1\n    return x\n", "total"),
    ("indentation", PYTHON, "\ttotal = a + b\n\treturn total", "\tif a:\n\t\treturn b", "    if a:\n    \treturn b\n", "total"),
    ("indentation", TABS, "x := 1\nif x > 0 {\n\tprintln(x)\n}", "x := 3\nif x > 2 {\n\tprint(x)\n}", "\tx := 3\n\tif x > 2 {\n\t\tprint(x)\n\t}\n}", "println"),
    ("indentation", TABS, "    x := 1\n    if x > 0 {\n        println(x)", "    x := 4\n    if x > 3 {\n        print(x)", "\tx := 4\n\tif x > 3 {\n\t\tprint(x)\n", "println"),
    ("indentation", TABS, "  x := 1\n", "  y := 1\n", "\ty := 1\n", "x := 1"),
    ("indentation", PYTHON, "class Boat:\n  def sail(self):\n    if self.wind:", "class Raft:\n  def sail(self):\n    if self.oar:", "class Raft:\n    def sail(self):\n        if self.oar:\n", "wind"),
    ("indentation", PYTHON, "        total = a + b\n", "    extra = 1\n", "b):\nextra = 1\n    return", "total = a"),
    ("typography", PROSE, "It's \"fine\" - really.", "All well.", "All well.\nAnother", "fine"),
    ("typography", PROSE, '"fine"', "'good'", "It\u2019s 'good' \u2014 really", "fine"),
    ("typography", PROSE, "Another line", "A line", "really.\nA line\nThe", "Another"),
    ("typography", PROSE, "It's", "That is", "That is \u201cfine\u201d", "It\u2019s"),
    ("typography", PROSE, "Another line\nThe end", "Over", "really.\nOver\n", "Another"),
    ("typography", PYTHON, "return \u201caway\u201d", "return 1", "            return 1\n", "away"),
    ("typography", PYTHON, "if self.wind:\n    return \u201caway\u201d", "if self.wind:\n    return 1", "            return 1\n", "away"),
    ("typography", PYTHON, "total\u00a0=\u00a0a + b", "total = 0", "    total = 0\n", "a + b"),
    ("typography", PYTHON, "a \u2212 b", "x", None, None),
    ("first and last line", PYTHON, "def first(a, b):\n    sum = a + b\n    return total\n", "def first(a, b):\n    return 0\n", "def first(a, b):\n    return 0\n\n", "total"),
    ("first and last line", PYTHON, "def first(a, b):\n    sum\n    return total", "pass", "pass\n\n\nclass", "total"),
    ("first and last line", PYTHON, "class Boat:\n    def row(self):\n        pass\n        pass\n        return 'home'", "class Boat:\n    pass", "class Boat:\n    pass\n\n    def moor", "sail"),
    ("first and last line", TABS, "if x > 0 {\n    fmt.Println(x)\n}", "if x > 1 {\n}", "\tif x > 1 {\n\t}\n}", "println"),
    ("exact, with escapes read as characters", PYTHON, "total = a + b\\n    return total", "return 0", "    return 0\n", "total"),
    ("exact, with escapes read as characters", PYTHON, 'return \\"away\\"', "return 0", "            return 0\n", "away"),
    ("exact, with escapes read as characters", PYTHON, 'if self.wind:\\n            return \\"away\\"', "if self.wind:\\n            return \\'far\\'", "return 'far'\n", "away"),
    ("exact, with escapes read as characters", TABS, "\\tx := 1\\n", "\\ty := 1\\n", "\ty := 1\n", "x := 1"),
    ("indentation, with escapes read as characters", PYTHON, "total = a + b\\nreturn total", "return 0", "    return 0\n", "total"),
]  # fmt: skip

REFUSED = [
    # (file, old, new, replace_all, words of the refusal)
    (PYTHON, "", "x", False, "old_string is empty"),
    (PYTHON, "import os", "import os", False, "are the same"),
    (PYTHON, "missing text", "x", False, "not found: 'missing text'"),
    (PYTHON, "missing text", "x", True, "not found"),
    (PYTHON, "x" * 500, "y", False, "x" * 120 + "…"),
    (PYTHON, "return 'home'", "return 1", False, "ambiguous: it was found 2 times, at lines 12, 15"),
    (PYTHON, "e", "f", False, "ambiguous"),
    (PYTHON, "def first(a, b):\n    return", "x", False, "Its first line is line 3 of the file"),
    (PYTHON, "   \n", "x", False, "not found"),
    (PYTHON, "\t\t", "x", False, "not found"),
    (PYTHON, "def first(a, b):\n    total = a + b\n    return 7\n", "x", False, "not found"),
    (PYTHON, "def first(a, b):\nreturn 7", "x", False, "not found"),
    (BLANKS + "one\ntwo \n", "one \ntwo", "x", False, "2 times (compared by trailing blanks)"),
    (TABS + TABS, "  x := 1", "x", False, "2 times (compared by indentation)"),
    ("\u201ca\u201d\n\u201ca\u201d\n", '"a"', "b", False, "2 times (compared by typography)"),
    ("f(1)\na\ng()\nf(1)\nb\ng()\n", "f(1)\nc\ng()", "x", False, "2 times (compared by first and last line)"),
    ("f(1)\na\ng()\nf(1)\nb\ng()\n", "f(1)\nc\ng()", "x", True, "add lines around it until it is unique"),
    ("{\na\n}\n", "{\nb\n}", "x", False, "not found"),
    ("x\na\n\n", "x\nb\n\n\n", "y", False, "not found"),
    (PYTHON, "total = a + b", "# ... existing code ...", False, "write out the whole replacement"),
    (PYTHON, "total = a + b", "# rest of the code unchanged", False, "write out the whole replacement"),
    (PYTHON, "total = a + b", "// ... rest of the function", False, "write out"),
    (PYTHON, "total = a + b", "/* code omitted */", False, "write out"),
    (PYTHON, "total = a + b", "x = 1\n# \u2026 remaining methods", False, "write out"),
    (PYTHON, "total = a + b", "# existing code here ...", False, "write out"),
    (PYTHON, "total = a + b", "# (omitted for brevity)", False, "write out"),
    (PYTHON, "total = a + b", "# rest of file stays the same", False, "write out"),
    (PYTHON, "total = a + b", "# No changes needed", False, "write out"),
]  # fmt: skip

VARIANTS = {
    "as it is": lambda text: text,
    "with CRLF": lambda text: text.replace("\n", "\r\n"),
    "with a BOM": lambda text: "\ufeff" + text,
    "without a last line end": lambda text: text.removesuffix("\n"),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("rung", "text", "old", "new", "expected", "absent"), FOUND)
def test_the_first_rung_that_finds_the_text_decides(variant, rung, text, old, new, expected, absent):
    change = VARIANTS[variant]
    if variant == "without a last line end" and text.endswith(old) and old.endswith("\n"):
        return
    given = change(text)
    if expected is None:
        with pytest.raises(EditRefused, match="not found"):
            apply_edit(given, TextEdit(old, new))
        return
    done = apply_edit(given, TextEdit(old, new))
    assert done.rung == rung
    assert done.places == 1
    plain = done.text.replace("\r\n", "\n")
    assert expected.rstrip("\n") in plain
    assert absent not in plain
    assert done.text.startswith("\ufeff") == given.startswith("\ufeff")
    assert given.startswith(done.text[:1]) or done.first_line == 1
    if variant == "with CRLF":
        assert done.text.count("\n") == done.text.count("\r\n")
    else:
        assert "\r" not in done.text


@pytest.mark.parametrize("variant", ["as it is", "with CRLF", "with a BOM"])
@pytest.mark.parametrize(("text", "old", "new", "replace_all", "words"), REFUSED)
def test_what_could_mean_something_else_is_refused_and_says_what_to_do(variant, text, old, new, replace_all, words):
    with pytest.raises(EditRefused) as raised:
        apply_edit(VARIANTS[variant](text), TextEdit(old, new, replace_all))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected", "count"),
    [
        (PYTHON, "'home'", "'port'", PYTHON.replace("'home'", "'port'"), 2),
        ("a a a", "a", "b", "b b b", 3),
        ("aaa", "aa", "b", "ba", 1),
        ("x \ny\nx\ny\n", "x\ny\n", "z\n", "x \ny\nz\n", 1),  # the exact one alone
        ("x \ny\nx\t\ny\n", "x\ny\n", "z\n", "z\nz\n", 2),
        ("  a(\n  )\n\ta(\n\t)\n", "a(\n)", "b(\n)", "  b(\n  )\n\tb(\n\t)\n", 2),
        ("\u2018a\u2019 \u2018a\u2019\n", "'a'", "b", "b b\n", 2),
    ],
)
def test_replace_all_replaces_every_occurrence_of_the_first_rung_that_finds_any(text, old, new, expected, count):
    done = apply_edit(text, TextEdit(old, new, replace_all=True))
    assert (done.text, done.places) == (expected, count)


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\r\nb\nc\r\nd\n", "b", "x\ny", "a\r\nx\ny\nc\r\nd\n"),
        ("a\r\nb\nc\r\nd\n", "c\n", "x\ny\n", "a\r\nb\nx\r\ny\r\nd\n"),
        ("a\r\nb\nc\r\nd\n", "b\nc", "x\ny", "a\r\nx\ny\r\nd\n"),
        ("a\r\nb\r\nc\r\nd\n", "b", "x\ny", "a\r\nx\r\ny\r\nc\r\nd\n"),
        ("a\rb\n", "b", "c", "a\rc\n"),
    ],
)
def test_lines_that_are_not_edited_keep_their_ends(text, old, new, expected):
    assert apply_edit(text, TextEdit(old, new)).text == expected


def test_a_placeholder_that_the_file_has_already_may_stay():
    text = "a = 1\n# ... existing code ...\n"
    done = apply_edit(text, TextEdit(text, text.replace("1", "2")))
    assert done.text == text.replace("1", "2")


@pytest.mark.parametrize(
    "text",
    ["the rest of the code handles errors", "print('...')", "existing = 3", "unchanged = True", "a ... b", "remaining"],
)
def test_ordinary_text_is_no_placeholder(text):
    assert find_placeholder(text, "") == ""


def test_an_edit_that_changes_nothing_is_refused():
    with pytest.raises(EditRefused, match="changes nothing"):
        apply_edit("'a'\n", TextEdit("\u2018a\u2019", "'a'"))


def test_the_lines_that_changed_are_told():
    done = apply_edit("a\nb\nc\n", TextEdit("b\n", "x\ny\n"))
    assert (done.first_line, done.last_line) == (2, 3)
    done = apply_edit("\n\na\n", TextEdit("a", "x\ny\nz"))
    assert (done.first_line, done.last_line) == (3, 5)
    with pytest.raises(EditRefused, match="2 times, at lines 2, 3: add lines around it until it is unique, or set"):
        apply_edit("\na\na", TextEdit("a", "b"))


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("a\n  b", "b \n", "x\ny\n", "a\n  x\n  y"),
        ("a\n  b\nc", "b \n", "x\ny\n", "a\n  x\n  y\nc"),
        ("a\n  b\n", "b \n", "x\ny\n", "a\n  x\n  y\n"),
        ("a\n  b", "b ", "x\n", "a\n  x\n"),
        ("a\n  b\nc", "b ", "x\n", "a\n  x\n\nc"),
        ("a \nb", "a\nb\n", "x\n", "x"),
        ("f(1)\na\ng()", "f(1)\nb\ng()\n", "x\n", "x"),
    ],
)
def test_the_end_of_the_last_line_is_there_afterwards_if_it_was_before(text, old, new, expected):
    assert apply_edit(text, TextEdit(old, new)).text == expected


@pytest.mark.parametrize("old", ["\n\n", " \n ", "\t\n"])
def test_blanks_that_are_not_there_exactly_are_found_nowhere(old):
    with pytest.raises(EditRefused):
        apply_edit("a \n\tb", TextEdit(old, "x"))


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("\tx\n", "    x", "  y", "  y\n"),  # it cannot be told how much less that is in tabs
        ("\t\tx\n", "\tx", "y", "\ty\n"),
        ("\t\t\ta\n\tb\n", "  a\n    b", "  c\n    d\n      e", "\t\t\tc\n\td\n\t  e\n"),
        ("  a\n\n  b\n", "a\n\nb", "c\n\n \nd", "  c\n\n \n  d\n"),
    ],
)
def test_new_lines_are_indented_as_the_old_ones_show(text, old, new, expected):
    assert apply_edit(text, TextEdit(old, new)).text == expected


def test_a_refusal_names_ten_places_and_advises_what_helps():
    with pytest.raises(EditRefused) as raised:
        apply_edit("a\n" * 11, TextEdit("a", "b"))
    assert str(raised.value) == (
        "old_string is ambiguous: it was found 11 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10: "
        "add lines around it until it is unique, or set replace_all"
    )
    with pytest.raises(EditRefused) as raised:
        apply_edit("f(1)\na\ng()\nf(1)\nb\ng()\n", TextEdit("f(1)\nc\ng()", "x", replace_all=True))
    assert str(raised.value) == (
        "old_string is ambiguous: it was found 2 times (compared by first and last line), at lines 1, 4: "
        "add lines around it until it is unique"
    )
    with pytest.raises(EditRefused) as raised:
        apply_edit("\n" + "f(1)\na\n" * 6, TextEdit("\nf(1)\nb", "x"))
    assert str(raised.value) == (
        "old_string was not found: '\\nf(1)\\nb'. Its first line is line 2, 4, 6, 8, 10 of the file, "
        "but what follows differs. Read the file again, and copy the text exactly."
    )


LINES = st.lists(st.text("ab \t'\u2019x", max_size=6), min_size=1, max_size=12)


@given(LINES, st.data())
def test_any_copied_block_is_replaced_where_it_is_and_nothing_else_changes(lines, data):
    text = "\n".join(lines)
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    old = "\n".join(lines[start:end])
    if not old or text.count(old) > 1:
        with pytest.raises(EditRefused, match=r"ambiguous|empty"):
            apply_edit(text, TextEdit(old, "NEW"))
        return
    done = apply_edit(text, TextEdit(old, "NEW"))
    assert done.rung == "exact"
    assert done.text == text.replace(old, "NEW")
