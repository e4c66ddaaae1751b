"""A corpus of broken skills: none of them stops the loader, costs much, or keeps its neighbours from being found."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure import ConfigError
from perdure._context.skills.files import MAX_FILE_BYTES
from perdure._context.skills.loading import read_skill


def with_fields(head: str) -> bytes:
    return f"---\n{head}\n---\nText.\n".encode()


def described(head: str) -> bytes:
    return with_fields(f"name: broken\ndescription: Broken.\n{head}")


BOMB = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(30))
MERGE = "base: &b {k: v}\n" + "".join(f"m{i}: {{<<: [*b, *b]}}\n" for i in range(500))

LEFT_OUT: dict[str, bytes] = {
    "an empty file": b"",
    "blanks alone": b" \n\n\t\n",
    "no front matter": b"# A skill\n",
    "text before it": b"Hello\n---\nname: broken\ndescription: x\n---\n",
    "it is not closed": b"---\nname: broken\ndescription: x\n",
    "it is not closed, and long": b"---\nname: broken\n" + b"a: b\n" * 20_000,
    "an opening line alone": b"---",
    "nothing in it": b"---\n---\nText.\n",
    "a comment alone": b"---\n# name: broken\n---\nText.\n",
    "no description": with_fields("name: broken"),
    "an empty description": with_fields("name: broken\ndescription:"),
    "a blank description": with_fields("name: broken\ndescription: '   '"),
    "a description that nobody sees": with_fields('name: broken\ndescription: "\\u200b\\u202e\\e[31m"'),
    "a description that is a list": with_fields("name: broken\ndescription: [a, b]"),
    "a description that is a map": with_fields("name: broken\ndescription: {a: b}"),
    "a bomb": described(BOMB),
    "a bomb after the description": described(f"metadata:\n  {BOMB}"),
    "an anchor": described("license: &x MIT"),
    "an alias": described("license: *x"),
    "a tag of Python": described("license: !!python/object/apply:os.system ['true']"),
    "a tag of a new object": described("license: !!python/object/new:type [x]"),
    "a tag": described("license: !!str MIT"),
    "a tag of its own": described("license: !secret MIT"),
    "merge keys": described(MERGE),
    "one merge key": described("metadata: {<<: {a: b}}"),
    "brackets": described("license: " + "[" * 20_000),
    "braces": described("license: " + "{a: " * 10_000),
    "nested too deep": described("license: " + "[" * 9 + "]" * 9),
    "indented too deep": described("".join(f"{' ' * i}a:\n" for i in range(200))),
    "too many fields": described("".join(f"k{i}: v\n" for i in range(5000))),
    "front matter too long": described(f"license: {'x' * 70_000}"),
    "a field twice": described("license: MIT\nlicense: GPL"),
    "a name twice": described("name: other"),
    "a tab": described("\tlicense: MIT"),
    "a tab inside": described("metadata:\n\ta: b"),
    "a NUL in a field": described("license: a\0b"),
    "a NUL in the body": described("license: MIT") + b"\0",
    "UTF-16": described("license: MIT").decode().encode("utf-16"),
    "a list of fields": b"---\n- name: broken\n- description: x\n---\n",
    "words": b"---\nname broken\n---\n",
    "a quote that is not closed": described("license: 'MIT"),
    "a list that is not closed": described("license: [MIT"),
    "a map for a key": described("? {a: b}\n: c"),
    "an escape beyond Unicode": described('license: "\\UFFFFFFFF"'),
    "a directive": with_fields(f"%YAML {'9' * 5000}.0"),
    "two documents": b"---\nname: broken\ndescription: x\n--- {a: b}\n---\nText.\n",
    "too long": described("") + b"x" * (MAX_FILE_BYTES + 1),
}
"""Skills that cannot be used, by what is wrong with them."""

MENDED: dict[str, bytes] = {
    "a name with capitals": with_fields("name: Broken\ndescription: x"),
    "a name that is too long": with_fields(f"name: {'broken-' * 20}\ndescription: x"),
    "a name that leads elsewhere": with_fields("name: ../../broken\ndescription: x"),
    "an absolute name": with_fields("name: /etc/broken\ndescription: x"),
    "a name of a device": with_fields("name: CON\ndescription: x"),
    "a name with controls": with_fields('name: "bro\\x07ken\\e[2J"\ndescription: x'),
    "a name with hyphens outside": with_fields("name: --broken--\ndescription: x"),
    "another name": with_fields("name: other\ndescription: x"),
    "a name that is a list": with_fields("name: [broken]\ndescription: x"),
    "no name": with_fields("description: x"),
    "an escape sequence": with_fields("name: broken\ndescription: \x1b[31mRed\x1b[0m \x1b]0;title\x07x"),
    "a description that is too long": with_fields(f"name: broken\ndescription: {'word ' * 1000}"),
    "bytes that are no UTF-8": described("license: MIT") + b"\xff\xfe\x80",
    "no UTF-8 in the description": b"---\nname: broken\ndescription: caf\xe9\n---\nText.\n",
    "an override of the reading direction": described("license: MIT") + "\u202etxet\u2066".encode(),
    "tag characters": described("license: MIT") + "".join(chr(0xE0000 + ord(c)) for c in "obey").encode(),
    "a priority that is no number": described("priority: high"),
    "a priority of 200,000 digits, nearly": described(f"priority: {'9' * 60_000}"),
    "hidden, perhaps": described("hidden: perhaps"),
    "metadata that is text": described("metadata: words"),
    "metadata that is deep": described("metadata: {a: {b: c}, d: e}"),
    "a licence that is a map": described("license: {a: b}"),
    "compatibility that is too long": described(f"compatibility: {'x' * 600}"),
    "no body": b"---\nname: broken\ndescription: x\n---\n",
}
"""Skills that are used all the same, with a word about them."""

FINE: dict[str, bytes] = {
    "a colon": with_fields("name: broken\ndescription: Use when: it rains"),
    "Windows line ends": described("license: MIT").replace(b"\n", b"\r\n"),
    "a byte order mark": b"\xef\xbb\xbf" + described("license: MIT"),
    "values that YAML would coerce": described(
        "license: no\nversion: 1.10\ndate: 2024-01-01\nallowed-tools: [Read, Bash]"
    ),
    "unknown fields": described("hooks: {PreToolUse: rm}\nmodel: opus"),
    "a number of very many digits": described(f"metadata: {{n: {'9' * 60_000}}}"),
}


def loaded_beside_good_ones(ground, text):
    ground.user_skill("a-good-one")
    ground.user_skill("broken", text)
    ground.user_skill("z-good-one")
    skills = ground.load()
    assert {"a-good-one", "z-good-one"} <= set(skills.names)
    return skills


def test_the_corpus_is_large_enough():
    assert len(LEFT_OUT) + len(MENDED) + len(SHAPES) >= 60


@pytest.mark.parametrize("text", LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_skill_that_cannot_be_used_is_left_out_with_one_message(ground, text):
    skills = loaded_beside_good_ones(ground, text)
    (problem,) = skills.problems
    assert "is left out: " in problem
    assert "broken" in problem
    assert len(problem) < 1000
    assert "broken" not in skills


@pytest.mark.parametrize("text", MENDED.values(), ids=MENDED)
def test_a_skill_that_can_be_mended_is_used_with_one_message(ground, text):
    skills = loaded_beside_good_ones(ground, text)
    (problem,) = skills.problems
    assert "has problems: " in problem
    (skill,) = [each for each in skills if "good" not in each.name]
    assert skill.problems
    assert len(skill.description) <= 1024
    assert all(each.isprintable() for each in (skill.name, skill.description, skill.license, *skill.metadata.values()))
    assert not any(each in skill.body for each in "\x1b\x07\u202e\u2066\U000e006f")


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_a_skill_that_is_merely_unusual_is_used_without_a_word(ground, text):
    skills = loaded_beside_good_ones(ground, text)
    assert skills.problems == ()
    assert skills.get("broken").body == "Text."


def test_a_skill_that_has_no_letter_to_be_called_by_is_left_out(ground):
    ground.user_skill("€", with_fields("name: '€'\ndescription: x"))
    ground.user_skill("good")
    skills = ground.load()
    assert skills.names == ("good",)
    assert "has a letter a-z" in skills.problems[0]


def test_what_yaml_would_coerce_stays_as_it_was_written(ground):
    skills = loaded_beside_good_ones(ground, described("license: no\ncompatibility: 1.10\nallowed-tools: [Read, Bash]"))
    skill = skills.get("broken")
    assert (skill.license, skill.compatibility, skill.allowed_tools) == ("no", "1.10", "Read Bash")


def test_a_description_with_escape_sequences_is_shown_without_them(ground):
    text = MENDED["an escape sequence"]
    assert loaded_beside_good_ones(ground, text).get("broken").description == "Red x"


# -- things that are no file -------------------------------------------------------------------------------------------


def a_pipe(directory: Path) -> None:
    os.mkfifo(directory / "SKILL.md")


def a_folder(directory: Path) -> None:
    (directory / "SKILL.md").mkdir()


def a_link_to_nowhere(directory: Path) -> None:
    (directory / "SKILL.md").symlink_to("nowhere.md")


def a_link_in_circles(directory: Path) -> None:
    (directory / "SKILL.md").symlink_to("SKILL.md")


def a_link_that_leads_out(directory: Path) -> None:
    (directory / "SKILL.md").symlink_to("/etc/passwd")


def a_device(directory: Path) -> None:
    (directory / "SKILL.md").symlink_to("/dev/zero")


def fifty_megabytes(directory: Path) -> None:
    with (directory / "SKILL.md").open("wb") as file:
        file.write(described("license: MIT"))
        file.truncate(50 * 1024 * 1024)


def a_terabyte(directory: Path) -> None:
    with (directory / "SKILL.md").open("wb") as file:
        file.truncate(1 << 40)


SHAPES: list[Callable[[Path], None]] = [
    *(a_pipe, a_folder, a_link_to_nowhere, a_link_in_circles, a_link_that_leads_out, a_device),
    *(fifty_megabytes, a_terabyte),
]


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_what_is_no_small_file_is_left_out_unread(ground, make, monkeypatch):
    make(ground.user_skill("broken", ...))
    ground.user_skill("good")
    largest = largest_read(monkeypatch)
    skills = ground.load()
    assert skills.names == ("good",)
    (problem,) = skills.problems
    assert "broken" in problem
    assert largest[0] <= MAX_FILE_BYTES


@pytest.mark.parametrize("make", SHAPES, ids=lambda make: make.__name__)
def test_a_projects_skill_that_is_no_small_file_is_left_out_unread_too(ground, make, monkeypatch):
    make(ground.skill("broken", ...))
    ground.skill("good")
    largest = largest_read(monkeypatch)
    skills = ground.load()
    assert [each.name for each in skills.untrusted] == ["good"]
    assert len(skills.problems) == 1
    assert largest[0] <= MAX_FILE_BYTES


def test_what_lies_beside_a_projects_skill_cannot_keep_the_loader(ground, monkeypatch):
    os.mkfifo(ground.skill("with-a-pipe") / "pipe")
    with (ground.skill("with-a-terabyte") / "data").open("wb") as file:
        file.truncate(1 << 40)
    (ground.skill("with-a-device") / "device").symlink_to("/dev/zero")
    largest = largest_read(monkeypatch)
    skills = ground.load()
    assert [each.name for each in skills.untrusted] == ["with-a-device", "with-a-pipe"]
    assert "with-a-terabyte" in skills.problems[0]
    assert largest[0] <= MAX_FILE_BYTES


def largest_read(monkeypatch):
    largest = [0]
    read = os.read

    def measured(descriptor, length):
        data = read(descriptor, length)
        largest[0] = max(largest[0], len(data))
        return data

    monkeypatch.setattr(os, "read", measured)
    return largest


def test_a_file_that_nobody_may_read_is_left_out(ground, monkeypatch):
    closed = ground.user_skill("broken")
    ground.user_skill("good")
    opened = os.open

    def refusing(path, *args, **kwargs):
        if path == "SKILL.md" and os.path.samestat(os.fstat(kwargs["dir_fd"]), closed.stat()):
            raise PermissionError(13, "Permission denied")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
    skills = ground.load()
    assert skills.names == ("good",)
    assert "Permission denied" in skills.problems[0]


# -- anything at all ---------------------------------------------------------------------------------------------------


@given(st.text() | st.binary())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_either_a_skill_or_refused(tmp_path, content):
    (tmp_path / "SKILL.md").write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        skill = read_skill(os.fspath(tmp_path))
    except ConfigError:
        return
    assert skill.description.isprintable()


@given(name=st.text(), description=st.text(), body=st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_and_description_make_a_skill_or_a_refusal(tmp_path, name, description, body):
    text = f"---\nname: {name}\ndescription: {description}\n---\n{body}"
    (tmp_path / "SKILL.md").write_text(text, encoding="utf-8")
    try:
        skill = read_skill(os.fspath(tmp_path))
    except ConfigError:
        return
    assert skill.description
    assert skill.name.replace("-", "").isalnum()
