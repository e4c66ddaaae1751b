"""Search in a folder: with ripgrep and without, the same results, and nothing from outside."""

# ruff: noqa: E501, PTH112 - a case is a line

import os
import subprocess
import sys
import time
from random import Random

import pytest

from perdure import Agent, ConfigError, Permissions, ToolError, allow, deny
from perdure._tools.search import local, ripgrep
from perdure._tools.search.patterns import PortableRegex
from perdure.hosts import GlobQuery, LocalFiles, LocalSearch, SearchQuery
from perdure.testing import ScriptedModel
from perdure.tools import glob_tool, grep_tool
from tests.seeds import chance

TREE: dict[str, str | bytes] = {
    "README.md": "# Boats\n\nA boat sails.\nTwo boats sail.\n",
    "src/boat.py": "class Boat:\n    def sail(self):\n        return 'away'\n\n\nBOAT = Boat()\n",
    "src/deep/er/oar.py": "import boat\n\noar = boat.BOAT\n",
    "src/oar.ts": "export const oar = 1;\r\nexport const Boat = oar;\r\n",
    "src/view.tsx": "interface{} boat\n",
    "src/utf8.txt": "Bjørn sails the båt — „wind“\n",
    "src/bom.txt": b"\xef\xbb\xbfboat first\nboat second\n",
    "src/latin.txt": b"a b\xe5t and a boat\nx\xff\n",
    "src/binary.dat": b"boat\0boat\n",
    "src/utf16.txt": "boat\n".encode("utf-16"),
    "src/large.txt": b"boat\n" * 2_000,
    "src/no_end": "last boat",
    "src/empty": "",
    "src/\u00e6\u00f8.txt": "boat\n",
    "src/.hidden.txt": "hidden boat\n",
    ".env": "BOAT=secret\n",
    "id_rsa": "boat\n",
    ".git/config": "boat\n",
    ".ssh/known": "boat\n",
    "build/out.py": "boat = 'ignored'\n",
    "src/keep.log": "boat\n",
    "src/other.log": "boat\n",
    "src/deep/.gitignore": "/er/*.tmp\n!kept.log\n",
    "src/deep/er/a.tmp": "boat\n",
    "src/deep/kept.log": "boat\n",
    "vendor/lib/.gitignore": "*\n!*.c\n",
    "vendor/lib/x.c": "boat\n",
    "vendor/lib/x.o": "boat\n",
    "inner/.git/HEAD": "ref\n",
    "inner/build/out.py": "boat\n",
    ".gitignore": "build/\n*.log\n!src/keep.log\n# comment\n\n",
}


def plant(root, tree=TREE):
    for name, data in tree.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data if isinstance(data, bytes) else data.encode())
    return root


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.needs("ripgrep")), False], ids=["ripgrep", "python"])
def searched(request, tmp_path):
    """Files, and a search in them, in both ways."""
    (tmp_path / "outside.txt").write_text("boat outside\n")
    files = LocalFiles(plant(tmp_path / "root"))
    return files, LocalSearch(files, use_ripgrep=request.param)


async def call(searched, name, **arguments):
    files, search = searched
    agent = Agent(ScriptedModel(), tools=[glob_tool(files, search), grep_tool(files, search)])
    return await agent.session().call(name, arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "*.py"}, ["inner/build/out.py", "src/boat.py", "src/deep/er/oar.py"]),
        ({"pattern": "src/*.py"}, ["src/boat.py"]),
        ({"pattern": "**/*.{ts,tsx}"}, ["src/oar.ts", "src/view.tsx"]),
        ({"pattern": "*.py", "path": "src"}, ["src/boat.py", "src/deep/er/oar.py"]),
        ({"pattern": "er/*", "path": "src/deep"}, ["src/deep/er/oar.py"]),
        ({"pattern": "src/deep/**"}, ["src/deep/.gitignore", "src/deep/er/oar.py", "src/deep/kept.log"]),
        ({"pattern": "*.log"}, ["src/deep/kept.log", "src/keep.log"]),
        ({"pattern": "*.log", "path": "src/deep"}, ["src/deep/kept.log"]),
        ({"pattern": "vendor/**"}, ["vendor/lib/x.c"]),
        ({"pattern": ".*"}, [".gitignore", "src/.hidden.txt", "src/deep/.gitignore"]),
        ({"pattern": "id_rsa"}, ["(no files)"]),
        ({"pattern": "[b-o]oa*.py"}, ["src/boat.py"]),
        ({"pattern": "[!b]*.ts"}, ["src/oar.ts"]),
        ({"pattern": "?ar.py"}, ["src/deep/er/oar.py"]),
        ({"pattern": "\u00e6*"}, ["src/\u00e6\u00f8.txt"]),
    ],
)
async def test_files_are_found_by_their_paths(searched, arguments, expected):
    result = await call(searched, "glob", **arguments)
    assert (result.status, result.text.splitlines()) == ("ok", expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "class \\w+"}, "src/boat.py:1: class Boat:"),
        ({"pattern": "oar;$"}, "src/oar.ts:2: export const Boat = oar;"),
        ({"pattern": "^boat"}, "inner/build/out.py:1: boat\nsrc/bom.txt:1: boat first\nsrc/bom.txt:2: boat second\nsrc/deep/kept.log:1: boat\nsrc/keep.log:1: boat\n"
            + "".join(f"src/large.txt:{number}: boat\n" for number in range(1, 196)) + "[more than 200 matches: use a narrower pattern, path or glob]\n[not shown: src/binary.dat: the pattern occurs in it, but it is a binary file]"),
        ({"pattern": "^boat", "glob": "*.txt", "output": "counts"}, "src/bom.txt:2\nsrc/large.txt:2000\nsrc/utf16.txt:1\nsrc/æø.txt:1"),
        ({"pattern": "^boat", "glob": "*.{dat,c}", "output": "files"}, "vendor/lib/x.c\n[not shown: src/binary.dat: the pattern occurs in it, but it is a binary file]"),
        ({"pattern": "boat", "path": "src/large.txt", "output": "files"}, "src/large.txt"),
        ({"pattern": "boat", "path": "src/binary.dat"}, "(no matches)\n[not shown: src/binary.dat: the pattern occurs in it, but it is a binary file]"),
        ({"pattern": "ship", "path": "src/binary.dat"}, "(no matches)"),
        ({"pattern": "boat", "path": "src/utf16.txt"}, "src/utf16.txt:1: boat"),
        ({"pattern": "interface{}"}, "src/view.tsx:1: interface{} boat"),
        ({"pattern": "b.t —"}, "src/utf8.txt:1: Bjørn sails the båt — „wind“"),
        ({"pattern": "BJØRN", "ignore_case": True}, "src/utf8.txt:1: Bjørn sails the båt — „wind“"),
        ({"pattern": "(?i)last BOAT"}, "src/no_end:1: last boat"),
        ({"pattern": "and a"}, "src/latin.txt:1: a b\ufffdt and a boat"),
        ({"pattern": "a b.t"}, "(no matches)"),
        ({"pattern": "boat", "path": "src/boat.py"}, "(no matches)"),
        ({"pattern": "Boat", "path": "src/boat.py", "output": "counts"}, "src/boat.py:2"),
        ({"pattern": "secret"}, "(no matches)"),
        ({"pattern": "ignored"}, "(no matches)"),
        ({"pattern": "outside"}, "(no matches)"),
        ({"pattern": "sail", "glob": "*.md", "output": "files"}, "README.md"),
        ({"pattern": "def", "context_lines": 1}, "src/boat.py-1- class Boat:\nsrc/boat.py:2:     def sail(self):\nsrc/boat.py-3-         return 'away'"),
        ({"pattern": "A boat|BOAT =", "context_lines": 1}, "README.md-2- \nREADME.md:3: A boat sails.\nREADME.md-4- Two boats sail.\n--\nsrc/boat.py-5- \nsrc/boat.py:6: BOAT = Boat()"),
    ],
)  # fmt: skip
async def test_lines_are_found_by_a_regular_expression(searched, arguments, expected):
    result = await call(searched, "grep", **arguments)
    assert result.status == "ok", result.text
    assert result.text == expected


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("glob", {"pattern": ""}, "no pattern"),
        ("glob", {"pattern": "../*"}, "without '..'"),
        ("glob", {"pattern": "/etc/*"}, "relative to the folder"),
        ("glob", {"pattern": "*", "path": "../"}, "outside the working folder"),
        ("glob", {"pattern": "*", "path": "missing"}, "no such folder"),
        ("glob", {"pattern": "*", "path": ".git"}, "secrets"),
        ("glob", {"pattern": "[z-a]"}, "no pattern"),
        ("grep", {"pattern": "x", "path": "/etc"}, "outside the working folder"),
        ("grep", {"pattern": "x", "path": "missing"}, "no such folder"),
        ("grep", {"pattern": "x", "path": ".ssh"}, "secrets"),
        ("grep", {"pattern": "x", "path": ".env"}, "cannot be searched"),
        ("grep", {"pattern": "x", "glob": "/etc/*"}, "relative"),
        ("grep", {"pattern": "("}, "no regular expression"),
        ("grep", {"pattern": "a\\nb"}, "one by one"),
        ("grep", {"pattern": "(?=a)b"}, "no lookaround"),
    ],
)
async def test_what_cannot_be_searched_says_why(searched, name, arguments, words):
    result = await call(searched, name, **arguments)
    assert result.status != "ok"
    assert words in result.text


async def test_many_results_are_cut_in_order(searched, tmp_path):
    plant(tmp_path / "root", {f"many/f{number:03}.txt": "a boat here\n" * 3 for number in range(210)})
    found = (await call(searched, "glob", pattern="many/*")).text.splitlines()
    assert found[0] == "many/f000.txt"
    assert found[199:] == ["many/f199.txt", "[more than 200 files: use a narrower pattern or path]"]
    lines = (await call(searched, "grep", pattern="here", path="many")).text.splitlines()
    assert lines[199] == "many/f066.txt:2: a boat here"
    assert lines[200:] == ["[more than 200 matches: use a narrower pattern, path or glob]"]


@pytest.mark.parametrize(("output", "kind"), [("files", "{}"), ("counts", "{}:30")])
async def test_files_and_counts_are_exact_and_say_where_they_are_cut(searched, tmp_path, output, kind):
    plant(tmp_path / "root", {f"many/f{number:03}.txt": "a boat here\n" * 30 for number in range(201)})
    arguments = {"pattern": "here", "path": "many", "output": output}
    lines = (await call(searched, "grep", **arguments)).text.splitlines()
    assert lines == [
        *[kind.format(f"many/f{number:03}.txt") for number in range(200)],
        "[more than 200 files: use a narrower pattern, path or glob]",
    ]
    lines = (await call(searched, "grep", **arguments, glob="f0*")).text.splitlines()
    assert lines == [kind.format(f"many/f{number:03}.txt") for number in range(100)]


@pytest.mark.parametrize(("output", "kind"), [("lines", "{}:1: a boat here"), ("files", "{}"), ("counts", "{}:1")])
async def test_files_that_a_rule_hides_take_no_place_of_others(searched, tmp_path, output, kind):
    names = [f"many/f{number:03}.txt" for number in range(230)]
    plant(tmp_path / "root", dict.fromkeys(names, "a boat here\n"))
    files, search = searched
    rules = Permissions(allow(), deny(target="many/f0*"), deny(target="many/f1*"))
    tools = [glob_tool(files, search), grep_tool(files, search)]
    session = Agent(ScriptedModel(), tools=tools, permission=rules).session()
    found = await session.call("grep", {"pattern": "here", "path": "many", "output": output})
    assert found.text.splitlines() == [kind.format(each) for each in names[200:]]
    assert (await session.call("glob", {"pattern": "many/*"})).text.splitlines() == names[200:]


async def test_a_file_of_some_megabytes_is_searched(searched, tmp_path):
    plant(tmp_path / "root", {"log.txt": b"a line of a long log\n" * 200_000 + b"the end\n"})
    for arguments in ({"path": "log.txt"}, {"glob": "log.*"}):
        assert (await call(searched, "grep", pattern="the end", **arguments)).text == "log.txt:200001: the end"


async def test_a_file_that_is_too_large_is_named(searched, tmp_path, monkeypatch):
    for module in (local, ripgrep):
        monkeypatch.setattr(module, "MOST_FILE_BYTES", 1_000)
    named = "[not shown: src/large.txt: it has 10,000 bytes, and the limit is 1,000]"
    for arguments in ({"path": "src/large.txt"}, {"glob": "large.*"}, {"glob": "large.*", "output": "counts"}):
        assert (await call(searched, "grep", pattern="boat", **arguments)).text == f"(no matches)\n{named}"


async def test_what_cannot_be_read_is_named(searched, tmp_path):
    plant(
        tmp_path / "root", {"some/a.txt": "boat", "some/b/x.txt": "boat", "some/c.txt": "boat", "some/.ssh/x": "boat"}
    )
    closed = [tmp_path / "root" / "some" / each for each in ("b", "c.txt", ".ssh")]
    for each in closed:
        each.chmod(0)
    if os.access(closed[1], os.R_OK):
        pytest.skip("root reads everything")
    problem = "it cannot be read (Permission denied)"
    found = (await call(searched, "grep", pattern="boat", path="some")).text
    assert found == f"some/a.txt:1: boat\n[not shown: some/b: {problem}; some/c.txt: {problem}]"
    assert (
        await call(searched, "glob", pattern="some/**")
    ).text == f"some/a.txt\nsome/c.txt\n[not shown: some/b: {problem}]"
    for each in closed:
        each.chmod(0o700)


def test_ripgrep_is_not_used_where_it_cannot_be_given_open_files(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "DESCRIPTORS", str(tmp_path / "none"))
    (tmp_path / "a.txt").write_text("boat\n")
    files = LocalFiles(tmp_path)
    search = LocalSearch(files)
    assert not search.uses_ripgrep
    assert [each.path for each in search.search_lines(files.resolve("."), SearchQuery("boat")).matches] == ["a.txt"]
    with pytest.raises(ConfigError, match="leave it out"):
        LocalSearch(files, use_ripgrep=True)


async def test_a_pattern_that_takes_for_ever_is_stopped_and_nothing_else_waits_for_it(tmp_path):
    (tmp_path / "a.txt").write_text("a" * 40 + "b\n")
    files = LocalFiles(tmp_path)
    search = LocalSearch(files, use_ripgrep=False, max_seconds=0.3)
    begun = time.monotonic()
    with pytest.raises(ToolError, match=r"stopped after 0\.3 seconds"):
        search.search_lines(files.resolve("."), SearchQuery("(a+)+$"))
    assert time.monotonic() - begun < 30


def test_a_pattern_that_is_none_does_not_pass_for_one_that_takes_too_long(tmp_path):
    """A host program may ask the backend itself, past the check of the tool."""
    (tmp_path / "a.txt").write_text("a\n")
    files = LocalFiles(tmp_path)
    with pytest.raises(ToolError, match="search failed"):
        LocalSearch(files, use_ripgrep=False).search_lines(files.resolve("."), SearchQuery("("))


@pytest.mark.needs("ripgrep")
def test_ripgrep_that_hangs_is_stopped(tmp_path):
    files = LocalFiles(tmp_path)
    search = LocalSearch(files, max_seconds=0.0)
    with pytest.raises(ToolError, match="stopped"):
        search.search_lines(files.resolve("."), SearchQuery("a"))


def test_a_program_called_rg_inside_the_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rg").write_text("#!/bin/sh\necho stolen\n")
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert not LocalSearch(LocalFiles(tmp_path)).uses_ripgrep
    with pytest.raises(ConfigError, match="install ripgrep"):
        LocalSearch(LocalFiles(tmp_path), use_ripgrep=True)
    with pytest.raises(ConfigError, match="give LocalFiles"):
        LocalSearch("folder")  # type: ignore[arg-type]


ATOMS = ["a", "b", "o", "boat", "sail", ".", "\\w", "\\d", "\\s", "\\b", "[a-f]", "[^a]", "[-b]", "(a|b)", "(?:o|ar)", "x{1,2}", "{", "}", "^", "$", "é", "\\.", "\\(", "[[&~-]"]  # fmt: skip
QUANTIFIERS = ["", "", "", "*", "+", "?", "{2}", "{1,}", "+?"]


def make_pattern(random: Random) -> str:
    parts = []
    for _ in range(random.randint(1, 4)):
        atom = random.choice(ATOMS)
        parts.append(atom if atom in {"^", "$", "\\b", "{", "x{1,2}"} else atom + random.choice(QUANTIFIERS))
    return "|".join(["".join(parts)] * random.randint(1, 2))


@pytest.mark.faults
@pytest.mark.needs("ripgrep")
def test_ripgrep_and_python_find_the_same_lines_and_files(tmp_path):
    random = chance("search")
    words = ["boat", "sail", "a", "b", "ob", " ", "é", "1", "{", "}", "(", ".", "x", "xx", "-", "&", "~", "[", "\t"]
    tree: dict[str, str | bytes] = {}
    for number in range(60):
        folder = random.choice(["", "src/", "src/deep/", "a/b/c/", "build/", "log/"])
        lines = ["".join(random.choices(words, k=random.randint(0, 6))) for _ in range(random.randint(0, 8))]
        lines += ["\0"] * (random.random() < 0.1)
        tree[f"{folder}f{number}.{random.choice(['py', 'txt', 'log'])}"] = random.choice(["\n", "\r\n"]).join(lines)
    rules = [
        "*.log",
        "build/",
        "/a/b",
        "!f1*.log",
        "src/**/f2*",
        "**/deep/*.txt",
        "c",
        "f?.py",
        "[fl]og",
        "\\!x",
        "deep/",
    ]
    for folder in ("", "src/", "a/"):
        tree[f"{folder}.gitignore"] = "\n".join(random.sample(rules, 3))
    files = LocalFiles(plant(tmp_path / "root", tree))
    fast, plain = LocalSearch(files, use_ripgrep=True), LocalSearch(files, use_ripgrep=False)
    compared, enough = 0, 400 if os.environ.get("PERDURE_SEARCH") == "long" else 15
    while compared < enough:  # a pattern that is refused compares nothing, and does not count
        try:
            pattern = PortableRegex(made := make_pattern(random))
        except ToolError:
            continue
        query = SearchQuery(
            pattern.text,
            random.random() < 0.3,
            random.choice(["", "*.py"]),
            random.choice([0, 2]),
            50,
            random.random() < 0.3,
        )
        target = files.resolve(random.choice([".", "src", "a"]))
        if os.path.isdir(target.path):
            assert fast.search_lines(target, query) == plain.search_lines(target, query), (made, query)
            compared += 1
    for pattern_ in ("*", "*.py", "src/**", "**/f?.*", "a/*/c/*"):
        for folder in (".", "src"):
            if os.path.isdir(files.resolve(folder).path):
                query_ = GlobQuery(pattern_)
                assert fast.find_files(files.resolve(folder), query_) == plain.find_files(files.resolve(folder), query_)


def test_the_program_that_searches_lines_imports_nothing_of_the_package():
    from perdure._tools.search import line_search

    code = "import sys, runpy; runpy.run_path(sys.argv[1]); print([m for m in sys.modules if 'perdure' in m])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, line_search.__file__], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_search_program_that_ends_at_once_leaves_nothing_open(tmp_path, monkeypatch):
    program = tmp_path / "ends.py"
    program.write_text("")
    monkeypatch.setattr(local, "_PROGRAM", str(program))
    search = local._LineSearch(SearchQuery("boat"), 30.0)
    search._process.wait()
    with pytest.raises(ToolError, match="the search failed"), search:
        pass
    assert [stream.closed for stream in (search._process.stdin, search._process.stdout) if stream] == [True, True]
    search._timer.join(30.0)
    assert not search._timer.is_alive()


async def test_the_last_of_the_first_matches_has_the_lines_after_it_and_no_others(searched):
    files, search = searched
    query = SearchQuery("A boat|BOAT =|away", context_lines=2, max_results=2)
    found = search.search_lines(files.resolve("."), query)
    assert found.is_truncated
    assert [(each.path, each.line, each.is_context) for each in found.matches] == [
        ("README.md", 1, True),
        ("README.md", 2, True),
        ("README.md", 3, False),
        ("README.md", 4, True),
        ("src/boat.py", 1, True),
        ("src/boat.py", 2, True),
        ("src/boat.py", 3, False),
        ("src/boat.py", 4, True),
        ("src/boat.py", 5, True),
    ]
