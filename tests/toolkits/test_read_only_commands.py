"""Commands that only read: options that are known, files below the folder, and no secrets."""

import pytest

from perdure.toolkits.read_only_commands import explain_reading


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "in").symlink_to("sub")
    return str(tmp_path)


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
    assert explain_reading([tuple(line.split())], folder) != [""]


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
    assert explain_reading([tuple(line.split())], folder) == [""]


def test_after_cd_a_file_must_be_below_the_folder_wherever_the_command_runs(folder):
    def explain(*lines):
        return [bool(each) for each in explain_reading([tuple(line.split()) for line in lines], folder)]

    assert explain("cd sub", "ls", "cat x") == [True, True, True]
    assert explain("cd sub", "ls ..") == [True, False]  # if the cd has failed, that is outside
    assert explain("cd sub", "git status") == [True, False]  # of another repository, perhaps
    assert explain("cd in", "ls") == [True, True]


def test_further_folders_may_be_readable(folder, tmp_path_factory):
    spool = tmp_path_factory.mktemp("spool")
    words = [("grep", "x", f"{spool}/1.out")]
    assert explain_reading(words, folder) == [""]
    assert explain_reading(words, folder, [str(spool)]) == ["grep only reads"]
