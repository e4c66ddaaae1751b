"""What counts as a word in a PostgreSQL store."""

import pytest

from perdure._stores.postgres import rows
from perdure._stores.postgres.rows import build_index_text, build_plain_query, build_websearch_query, tokenize


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The harbour, at night.", "the harbour at night"),
        ("perdure/stores/file_log.py:12", "perdure stores file log py 12"),
        ("Vec<String> & <b>bold</b> <!-- not lost -->", "vec string b bold b not lost"),
        ("“Größe” — ÄRGER…", "größe ärger"),
        ("a-b@example.com https://example.com/x?y=1", "a b example com https example com x y 1"),
        ("-5 3.14 1e5", "5 3 14 1e5"),
        ("日本語 text", "日本語 text"),
        ("\ufffd !", ""),
        ("", ""),
        (f"a blob {'0f' * 1024} and more", "a blob  and more"),
    ],
)
def test_a_word_is_a_run_of_letters_and_digits(text, words):
    assert build_index_text(text) == words


@pytest.mark.parametrize("text", ["plain ASCII, a_b", "größe “ÄRGER” \U0001f600 ß", "", "…"])
def test_the_places_of_words_are_those_in_the_bytes(text):
    data = text.encode()
    placed = tokenize(data)
    assert [data[start:end].decode().lower() for start, end, _ in placed] == [word for _, _, word in placed]
    assert " ".join(word for _, _, word in placed) == build_index_text(text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("harbour Lantern harbour", "harbour lantern"),
        ("file_log.py", "file log py"),
        ("-not \"quoted\" or 'x'", "not quoted or x"),
        ("*:&|!()<->", ""),
        ("x" * 2046, "x" * 2046),
        ("x" * 2047 + " y", ""),
    ],
)
def test_plain_words_are_nothing_but_words(query, text):
    assert build_plain_query(query).text == text
    assert build_plain_query(query).words == frozenset(text.split())


@pytest.mark.parametrize(
    ("query", "text", "shown"),
    [
        ("harbour lantern", "harbour lantern", {"harbour", "lantern"}),
        ('"the Harbour" at', '"the harbour" at', {"the", "harbour", "at"}),
        ("harbour OR lantern", "harbour or lantern", {"harbour", "lantern"}),
        ("harbour -lantern", "harbour -lantern", {"harbour"}),
        ('harbour -"red lantern" night', 'harbour -"red lantern" night', {"harbour", "night"}),
        ("file_log.py -a/b", '"file log py" -"a b"', {"file", "log", "py"}),
        ('"not closed', '"not closed"', {"not", "closed"}),
        ('"" - "', "", set()),
        ("-only", "-only", set()),
        ("&|!*:()<>", "", set()),
    ],
)
def test_a_query_keeps_quotes_minus_and_or(query, text, shown):
    assert build_websearch_query(query) == (text, frozenset(shown))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one two thr", "one two thr"),  # exactly what is indexed as it is
        ("one two one", "one two one"),
        ("one two one four two fiv", "one two one four fiv"),
        ("one two thr four fiv", "one two thr four fiv"),  # nine characters with their blanks
        ("one two thr four five", "one two thr four"),
        ("one two thr four five six", "one two thr four"),  # what follows is not looked for either
        ("one two thr fo, fo; FO! x", "one two thr fo x"),
        ("one two thr fo fo fo fo fo x y", "one two thr fo"),  # nothing beyond what is read
    ],
)
def test_of_a_very_long_text_the_beginning_is_indexed_and_then_each_further_word_once(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setattr(rows, "MAX_INDEXED_CHARACTERS", 11)
    monkeypatch.setattr(rows, "MAX_FURTHER_CHARACTERS", 9)
    monkeypatch.setattr(rows, "MAX_READ_CHARACTERS", 27)
    assert build_index_text(text) == words


@pytest.mark.parametrize(("count", "words"), [(2045, "a " + "x" * 2045), (2046, "a " + "x" * 2046), (2047, "a ")])
def test_a_word_that_the_server_would_leave_out_is_not_sent(count: int, words: str) -> None:
    assert build_index_text("a " + "x" * count) == words
