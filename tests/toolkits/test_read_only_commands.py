"""Commands that only read: options that are known, files below the folder, and no secrets."""

import pytest

from perdure._tools.shell.read_only import _GIT, _PROGRAMS, ReadingRules
from perdure.tools import explain_reading


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "in").symlink_to("sub")
    return str(tmp_path)


class Insight:
    """What a backend knows of its commands."""

    def __init__(self, *paths, hidden=()):
        self.paths, self.hidden = paths, hidden

    def list_hidden_paths(self):
        return self.hidden

    def list_git_paths(self, command, options, revisions, paths):
        return None if "unknown" in revisions else self.paths


def find_parts(folder, *lines, **options):
    rules = ReadingRules(root=folder, **{"insight": Insight("a.py"), **options})
    return explain_reading([tuple(line.split()) for line in lines], rules)


def explain(folder, *lines, **options):
    return [each.reads_only for each in find_parts(folder, *lines, **options)]


@pytest.mark.parametrize(
    "line",
    [
        *("ls", "ls -la sub", "ls --color=never", "cat a b", "head -n 5 a", "head -5 a", "head -n5 a", "tail -20 a"),
        *("wc -l a",),
        *("grep -rn x sub", "grep -e x a", "grep /api a", "grep -A 3 x a", "grep --include=*.py x .", "rg -n x"),
        *("rg -g *.py x",),
        *("find . -name x -type f", "find sub -maxdepth 2", "sort -k 2 a", "uniq -c a", "cut -d , -f 1 a", "tr a b"),
        *("date +%s",),
        *("git status", "git log -3 --oneline", "git diff HEAD~1 -- sub", "git show HEAD:a", "git branch -a"),
        *("git --no-pager log",),
        *("git stash list", "git tag -l", "git rev-parse --show-toplevel", "git blame -L 1,5 a"),
        *("echo -n /etc/passwd", "pwd"),
        *("cat in/a", "cat -", "cat /dev/null", "cat -- -x", "test -f a", "python3 --version", "printf %s x"),
        *("expr 1 + 2", "true"),
    ],
)  # fmt: skip
def test_a_known_use_is_silent(folder, line):
    assert explain(folder, line) != [""]


@pytest.mark.parametrize(
    "line",
    [
        *("rm a", "ls -Z --x", "cat out/passwd", "cat ../a", "cat /etc/hosts", "cat .env", "cat sub/.ENV", "git"),
        *("git push",),
        *("grep -f out/passwd a", "grep --file=/etc/x a", "grep -f/etc/x a", "sort -o a b", "sort --output=a"),
        *("sort -oa", "uniq a b"),
        *("date -s x", "date 0101", "find . -delete", "find out", "git -C sub status", "git log --output=x"),
        *("git branch x",),
        *("git tag v1", "git show HEAD:.env", "head -z5 --bad", "cd", "cd out", "cd ..", "cd a b", "python3 x"),
        *("git --no-pager",),
    ],
)  # fmt: skip
def test_any_other_is_not(folder, line):
    assert explain(folder, line) == [""]


def test_after_cd_a_file_must_be_below_the_folder_wherever_the_command_runs(folder):
    def find_silent(*lines):
        return [bool(each) for each in explain(folder, *lines)]

    assert find_silent("cd sub", "ls", "cat x") == [True, True, True]
    assert find_silent("cd sub", "ls ..") == [True, False]  # if the cd has failed, that is outside
    assert find_silent("cd sub", "git status") == [True, False]  # of another repository, perhaps
    assert find_silent("cd in", "ls") == [True, True]


def test_further_folders_may_be_readable(folder, tmp_path_factory):
    spool = tmp_path_factory.mktemp("spool")
    line = f"grep x {spool}/1.out"
    assert explain(folder, line) == [""]
    assert explain(folder, line, readable=(str(spool),)) == ["grep only reads"]


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("cat a sub/b", ["a", "sub/b"]),
        ("cat in/x", ["sub/x"]),
        ("cat", []),
        ("echo a", []),
        ("ls", ["."]),
        ("ls -R sub", ["sub/"]),
        ("grep -r x", ["./"]),
        ("grep -rn x sub", ["sub/"]),
        ("grep -e x -f a b", ["b", "a", "x"]),
        ("rg x", ["./"]),
        ("find", ["./"]),
        ("find -name x", ["./"]),
        ("find -L sub -name x", ["sub/"]),
        ("diff sub in", ["sub/"]),
        ("diff a b", ["a", "b"]),
        ("git status", []),
        ("git log -3", []),
        ("git show --stat", []),
        ("git diff -s", []),
        ("git diff", ["a.py"]),
        ("git log -p", ["a.py"]),
        ("git blame a", ["a"]),
        ("git show HEAD:a", ["a"]),
        ("git cat-file -t x", []),
        ("git cat-file -p HEAD:a", ["a"]),
        ("git diff unknown", ["./"]),
        ("git show HEAD:a HEAD", ["./"]),
        ("git grep x", ["./"]),
        ("git commit -m x", None),
        ("git commit -v -m x", ["./"]),
        ("git add -p", ["./"]),
        ("git -C . show HEAD", ["./"]),
        ("git fast-export HEAD", ["./"]),
        ("git", ["./"]),
        ("git status -v", ["./"]),
        ("cat --unknown", ["./"]),
        ("make", None),
    ],
)
def test_what_a_command_can_show_is_known_or_everything_or_unknown(folder, line, reads):
    (part,) = find_parts(folder, line)
    named = {".": folder, "./": f"{folder}/"}
    paths = None if reads is None else {named.get(each, f"{folder}/{each}") for each in reads}
    assert (None if part.reads is None else {*part.reads}) == paths


def test_a_search_in_a_folder_with_secrets_is_not_silent(tmp_path):
    root, deep = str(tmp_path), tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert explain(root, "grep -r x .", "rg x", "diff -r a a") != [""] * 3
    (deep / "server.pem").write_text("x")
    lines = ["grep -r x .", "grep -R x a", "rg x", "diff -r a a", "grep -r --recursive x a/b"]
    assert explain(root, *lines) == [""] * 5
    assert "" not in explain(root, "ls -R", "find .", "grep x a/b", "tree", "cat a/x")
    assert explain(root, "grep -r x .", insight=Insight(hidden=[str(deep / "server.pem")])) == ["grep only reads"]
    assert explain(root, "grep -r x .", insight=None) == [""]


def test_version_control_and_hidden_files_are_left_out_where_the_command_does(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    root = str(tmp_path)
    assert explain(root, "grep -r x .") == [""]
    assert explain(root, "rg -u x", "rg --hidden x") == ["", ""]
    assert "" not in explain(root, "rg x", "grep -r --exclude-dir=.git x .")


def test_after_a_link_cd_and_the_kernel_mean_another_folder_by_two_dots(folder):
    """In bash `cd in/..` goes to the folder of the link, to the kernel it is the folder above the target."""
    for line in ("cd in/..", "cd sub/..", "cd in/../sub", "cd .."):
        assert explain(folder, "cd sub", line, "ls")[1] == ""
    assert explain(folder, "cd in/x..y", "cat ..x") != ["", ""]


@pytest.mark.parametrize(
    "line",
    [
        *("rg x", "rg -g .e* x", "rg --glob=.env x", "rg --iglob=.ENV x", "rg -g * x", "rg -g src/** x"),
        *("rg -g.env x sub", "rg --glob .e* x", "rg -ng.e* x", "rg -ing .e* x", "rg -g *.py --iglob .e* -e [a]"),
    ],
)
def test_a_search_that_brings_hidden_secrets_is_not_silent(folder, tmp_path, line):
    (tmp_path / "sub" / ".env").write_text("x")
    is_plain = line == "rg x"
    assert explain(folder, line) == ["rg only reads" if is_plain else ""]
    assert explain(folder, "rg -g *.py -g !*.md -e [a]x", "rg -n -g *.e x") == ["rg only reads"] * 2
    (tmp_path / ".ignore").write_text("!.e*\n")
    assert explain(folder, line, "rg -g *.py x sub") == ["", ""]


@pytest.mark.parametrize(
    "line", ["rg --max-count 5 x", "grep -r --max-count 5 x", "rg --regexp x", "rg -e x --sort path"]
)
def test_the_value_of_a_long_option_is_not_taken_for_the_file_that_is_searched(folder, tmp_path, line):
    assert f"{folder}/" in find_parts(folder, line)[0].reads
    (tmp_path / "sub" / "server.pem").write_text("x")
    assert explain(folder, line) == [""]


def test_links_that_are_followed_are_not_silent(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    lines = ("find -L .", "find . -follow", "ls -RL", "du -L", "ls -LR .")
    assert set(explain(str(tmp_path), *lines)) == {""}
    assert "" not in explain(str(tmp_path), "find .", "ls -R", "du", "ls -L", "find -L sub")
    assert explain(str(tmp_path), "grep -r x .", "rg x") == ["grep only reads", "rg only reads"]
    assert explain(str(tmp_path), "grep -R x .", "rg -L x") == ["", ""]


GIT_CONTENTS = ("git diff", "git show HEAD", "git log -p", "git show HEAD --stat -p", "git diff --word-diff")


def test_git_that_searches_contents_without_showing_them_is_not_silent(folder):
    for line in ("git log -S SECRET", "git log -G '^KEY=a' --oneline", "git log -SKEY -- src", "git diff --stat -GKEY"):
        assert explain(folder, line, insight=Insight("src/x.py")) == [""]


@pytest.mark.parametrize("name", [".env", "a/b/id_rsa", "server.pem"])
def test_git_contents_of_secret_files_are_not_silent(folder, name):
    for line in GIT_CONTENTS:
        assert explain(folder, line, insight=Insight("src/x.py", name)) == [""]
        assert explain(folder, line, insight=None) == [""]


def test_git_contents_of_other_files_are_silent(folder):
    for line in GIT_CONTENTS:
        assert explain(folder, line, insight=Insight(*map(str, range(30)))) != [""]
    assert explain(folder, "git diff", insight=Insight(*map(str, range(3_000)))) != [""]


@pytest.mark.parametrize(("count", "are_known"), [(1_999, True), (2_000, True), (2_001, False)])
def test_the_files_that_git_shows_are_named_up_to_2000(folder, count, are_known):
    (part,) = find_parts(folder, "git diff", insight=Insight(*map(str, range(count))))
    assert part.reads_only
    assert (part.reads is not None and f"{folder}/7" in part.reads) == are_known


def test_a_list_of_checksums_may_name_any_file(folder):
    assert explain(folder, "sha256sum -c sums", "md5sum --check sums") == ["", ""]


@pytest.mark.parametrize("name", ["grep", "egrep", "fgrep", "rg"])
def test_an_option_with_another_value_leaves_the_pattern_to_the_first_operand(folder, name):
    assert explain(folder, f"{name} -m 1 /etc/x in/a") != [""]
    assert explain(folder, f"{name} -m 1 x /etc/passwd") == [""]


@pytest.mark.parametrize("name", ["grep", "egrep", "fgrep", "rg"])
def test_a_pattern_at_the_end_of_a_bundle_of_letters_leaves_the_operands_to_files(folder, name):
    bundles = [f"-{flag}{letter}" for flag in ("", *_PROGRAMS[name].flags) for letter in "ef"]
    outside = [f"{name} {bundle} sub /etc/passwd" for bundle in bundles]
    assert set(explain(folder, *outside)) == {""}
    inside = [f"{name} {bundle} sub in/a" for bundle in bundles if not set("rR") & set(bundle)]
    assert [part.reads_only for part in find_parts(folder, *inside)] != [""] * len(inside)
    assert all(f"{folder}/sub/a" in (part.reads or ()) for part in find_parts(folder, f"{name} -ie x in/a"))


@pytest.mark.parametrize(
    "line",
    [
        "rg --files /etc",
        "git cat-file blob 1234567",
        "git show :/fix",
        "git show :0:/etc/x",
        "git cat-file blob HEAD:../x",
    ],
)
def test_other_forms_do_not_reach_further(folder, line):
    assert explain(folder, line) == [""]


def test_a_file_at_a_revision_is_known_at_the_top_of_a_repository_alone(folder):
    assert explain(folder, "git show HEAD:a", "git show :0:a", "git cat-file blob HEAD:a") != ["", "", ""]
    (part,) = find_parts(folder, "git show :0:a")
    assert part.reads == (f"{folder}/a",)
    assert explain(f"{folder}/sub", "git show HEAD:a", "git cat-file -p HEAD:a") == ["", ""]


def test_diff_of_folders_with_a_link_is_not_silent(folder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").write_text("x")
    assert explain(folder, "diff -r sub other") == ["diff only reads"]
    (tmp_path / "other" / "b").symlink_to("/etc/passwd")
    assert explain(folder, "diff -r sub other", "diff sub other") == ["", ""]


EVERY_PROGRAM = [*_PROGRAMS, *[f"git {each}" for each in _GIT]]


def find_silent_programs(folder, arguments, names=EVERY_PROGRAM):
    parts = find_parts(folder, *[f"{name} {arguments}" for name in names])
    return {name for name, part in zip(names, parts, strict=True) if part.reads_only}


WITHOUT_OPERANDS = {
    *("groups", "id", "pwd", "uname", "whoami", "git branch", "git count-objects", "git reflog", "git remote")
}
WITHOUT_FILES = {"echo", "expr", "printf"}
WITH_NUMBER = {"egrep", "fgrep", "grep", "head", "tail", "git log", "git rev-list"}


def test_each_program_has_as_many_operands_as_it_only_reads(folder):
    silent = [find_silent_programs(folder, "a " * count) for count in range(4)]
    unread = {"git cat-file"}  # without an option, or the name of a file at a revision, it is not known what it shows
    everything = {*EVERY_PROGRAM}
    assert everything - silent[0] == unread
    assert everything - silent[1] == unread | WITHOUT_OPERANDS | {"date"}
    assert everything - silent[2] == unread | WITHOUT_OPERANDS | {"date", "uniq"}
    assert everything - silent[3] == unread | WITHOUT_OPERANDS | {"date", "uniq", "tr"}
    assert explain(folder, "date +%s", "date +%s +%s") == ["date only reads", ""]


def test_only_the_operands_of_some_programs_are_no_files(folder):
    outside = find_silent_programs(folder, "/etc/passwd")
    assert outside == {*WITHOUT_FILES, "egrep", "fgrep", "grep", "rg", "tr"}
    assert find_silent_programs(folder, "/etc/passwd /etc/passwd") == {*WITHOUT_FILES, "tr"}


def test_a_number_is_an_option_of_these_programs_alone(folder):
    names = [each for each in EVERY_PROGRAM if each != "comm"]
    assert find_silent_programs(folder, "-25 a", names) == WITH_NUMBER


def test_these_programs_read_the_folder_that_they_run_in_when_no_file_is_named(folder):
    parts = {name: find_parts(folder, name)[0].reads for name in _PROGRAMS}
    assert {name: reads for name, reads in parts.items() if reads} == {
        "du": (f"{folder}/",),
        "find": (f"{folder}/",),
        "ls": (folder,),
        "rg": (f"{folder}/",),
        "tree": (f"{folder}/",),
    }


def test_a_folder_with_secrets_is_read_silently_by_what_shows_names_alone(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "server.pem").touch()
    root = str(tmp_path)
    lines = ["du", "find", "ls -R", "ls --recursive", "tree", "rg x", "grep -r x", "grep --recursive x", "diff sub sub"]
    assert explain(root, *lines) == [
        *("du only reads", "find only reads", "ls only reads", "ls only reads", "tree only reads", "", "", "", "")
    ]
    assert find_parts(root, "ls --recursive")[0].reads == (f"{root}/",)


def test_what_a_command_shows_after_cd_is_below_each_folder_that_it_may_run_in(folder):
    parts = find_parts(folder, "cd sub", "cat x", "git stash list", "git log", "git commit -m x")
    assert [(each.reads_only, each.reads) for each in parts] == [
        (f"cd goes to a folder below {folder}", ()),
        ("cat only reads", (f"{folder}/x", f"{folder}/sub/x")),
        ("", ()),
        ("", (f"{folder}/",)),
        ("", None),
    ]


def test_the_reason_names_the_command_and_that_of_git_with_its_subcommand(folder):
    lines = ["git log -3", "git --version", "python3 --version", "ls -la", "git --no-pager log", "git tag"]
    assert explain(folder, *lines) == [
        "git log only reads",
        "git --version only reads",
        "python3 only reads",
        "ls only reads",
        "git --no-pager only reads",
        "git tag only reads",
    ]
