"""Spellings by which a model might evade a rule, or be allowed by one: paths, commands and addresses.

Each list is tried against one rule that allows and one that denies. No spelling may be allowed that does not mean what
the rule names, and none may evade the denial that some file system, shell or server takes for what is denied.
"""

import os
from pathlib import Path

import pytest

from perdure import Permissions, allow, deny
from perdure.permissions import (
    CommandTarget,
    PathTarget,
    PermissionRequest,
    Target,
    TextTarget,
    UncomputableTarget,
    UrlTarget,
    command,
    path,
    url,
)


def request(target: Target, **arguments: str) -> PermissionRequest:
    typed = None if isinstance(target, TextTarget) else target
    return PermissionRequest("c", "touch", "touch", str(target), arguments, "", True, "s", "r", typed)


def resolve(make: object, given: str) -> Target:
    try:
        return make(given)  # type: ignore[operator]
    except ValueError as error:
        return UncomputableTarget(str(error))


def verdict(permissions: Permissions, target: Target, **arguments: str) -> str:
    return permissions.explain(request(target, **arguments)).verdict


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("drafts/deep", "private", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "private" / "secret.txt").write_text("secret")
    (tmp_path / "drafts" / "link").symlink_to(tmp_path / "private")
    (tmp_path / "drafts" / "far").symlink_to("/etc")
    (tmp_path / "drafts" / "up").symlink_to("..")
    (tmp_path / "drafts" / "loop").symlink_to("loop")
    (tmp_path / "drafts" / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "drafts" / "gone").symlink_to("/nowhere/at/all")
    (tmp_path / "alias").symlink_to("private")
    return tmp_path


# -- paths -------------------------------------------------------------------------------------------------------------

OUTSIDE_DRAFTS = [
    "drafts/../../etc/passwd",
    "drafts/../x",
    "drafts/..",
    "drafts/../",
    "drafts/deep/../../x",
    "drafts/deep/../../../../../../etc/passwd",
    "drafts//..//x",
    "drafts/./../x",
    "drafts/./.././x",
    "./drafts/../x",
    "drafts/link/x",
    "drafts/link/../x",
    "drafts/link",
    "drafts/far/passwd",
    "drafts/far/./passwd",
    "drafts/up/x",
    "drafts/up/private/secret.txt",
    "drafts/up/drafts/../x",
    "drafts/deep/../link/secret.txt",
    "drafts/passwd",
    "drafts/gone",
    "drafts/loop",
    "drafts/loop/x",
    "drafts/x\0.txt",
    "drafts\0/x",
    "/etc/passwd",
    "//etc/passwd",
    "/drafts/x",
    "../drafts/x",
    "x",
    ".",
    "",
    " ",
    "drafts2/x",
    "draftsx",
    "Drafts/x",
    "DRAFTS/x",
    "drafts /x",
    "drafts./x",
    "drafts\\x",
    "drafts\\..\\x",
    "..\\drafts\\x",
    "d\u0440afts/x",  # a Cyrillic letter
    "drafts\u200b/x",
    "\u200ddrafts/x",
    "\uff44rafts/x",  # a wide letter
    "~/drafts/x",
    "$HOME/drafts/x",
    "file:///drafts/x",
    "%2e%2e/drafts/x",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd/../x",
    "/dev/fd/../../etc/passwd",
    "drafts/\udcff",
]

INSIDE_DRAFTS = [
    "drafts/x",
    "drafts/deep/x",
    "./drafts/x",
    "drafts//x",
    "drafts/./x",
    "drafts/x/",
    "drafts/deep/../x",
    "other/../drafts/x",
    "private/../drafts/new/x",
    "drafts/up/drafts/x",
    "drafts/%2e%2e/x",  # a name like any other
    "drafts/..x",
    "drafts/...",
    "drafts/-rf",
    "drafts/é",
]


@pytest.mark.parametrize("given", OUTSIDE_DRAFTS)
def test_no_spelling_of_another_path_is_allowed(folder: Path, given: str):
    target = resolve(lambda text: PathTarget.of(text, folder), given)
    assert verdict(Permissions(allow(target=path("drafts/**"))), target) == "deny"


@pytest.mark.parametrize("given", INSIDE_DRAFTS)
def test_every_spelling_of_an_allowed_path_is_allowed(folder: Path, given: str):
    target = PathTarget.of(given, folder)
    assert verdict(Permissions(allow(target=path("drafts/**"))), target) == "allow"
    assert verdict(Permissions(allow(target=path(f"{folder.resolve()}/drafts/**"))), target) == "allow"


SPELLINGS_OF_A_KEY = [
    "master.key",
    "./master.key",
    "master.key/",
    "master.key/.",
    "MASTER.KEY",
    "Master.Key",
    "master.key.",
    "master.key..",
    "master.key ",
    "master.key. .",
    "master.key::$DATA",
    "master.key:stream",
    "drafts/master.key",
    "drafts/deep/a.key",
    "drafts/../master.key",
    "../outside.key",
    "/etc/ssl/x.key",
    "/x.key",
    "master.k\u0065y",
    "master.\uff4bey",
    "master.\u212aey",  # the sign for kelvin
    "master.key\u200b",
    "master.ke\u200cy",
    "master.\u202ekey",
    "mas\u00adter.key",
    ".key",
    "a.b.key",
    "x.key/below",
    "drafts\\x.key",
    "-rf.key",
    " .key",
]


@pytest.mark.parametrize("pattern", [path("**/*.key"), path("*.key"), "*.key"], ids=str)
@pytest.mark.parametrize("given", SPELLINGS_OF_A_KEY)
def test_no_spelling_evades_a_denial_of_a_kind_of_file(folder: Path, given: str, pattern: object):
    rules = Permissions(allow("touch"), deny(target=pattern))  # type: ignore[arg-type]
    assert verdict(rules, PathTarget.of(given, folder)) == "deny"


SPELLINGS_OF_PRIVATE = [
    "private/secret.txt",
    "private",
    "private/",
    "PRIVATE/secret.txt",
    "Private/Secret.txt",
    "private./secret.txt",
    "private /x",
    "./private/x",
    "drafts/../private/x",
    "drafts/link/x",
    "drafts/link/deeper/x",
    "drafts/up/private/x",
    "drafts/up/drafts/link/x",
    "alias/x",
    "alias",
    "priv\u200bate/x",
    "\uff50rivate/x",
    "private/../private/x",
    "private//x",
    "private/a/b/c",
    "private\\x",
]


@pytest.mark.parametrize("pattern", ["private/**", "private/", "private", "alias/**", "alias"])
@pytest.mark.parametrize("given", SPELLINGS_OF_PRIVATE)
def test_no_spelling_or_link_evades_a_denial_of_a_folder(folder: Path, given: str, pattern: str):
    if pattern.startswith("alias") and given in {"private\\x", "priv\u200bate/x", "\uff50rivate/x", "private /x"}:
        pytest.skip("on this system it is another folder than the one that the link names")
    rules = Permissions(allow("touch"), deny(target=path(pattern)))
    assert verdict(rules, PathTarget.of(given, folder)) == "deny"


@pytest.mark.parametrize("given", ["drafts/x", "other/private.txt", "privateer/x", "x.keys", "key"])
def test_a_denial_leaves_other_files_alone(folder: Path, given: str):
    rules = Permissions(allow("touch"), deny(target=path("private/**")), deny(target="*.key"))
    assert verdict(rules, PathTarget.of(given, folder)) == "allow"


def test_a_folder_that_is_swapped_for_a_link_after_the_check_is_not_followed(folder: Path):
    target = PathTarget.of("drafts/deep/x", folder)
    assert path("drafts/**").allows(target)
    (folder / "drafts" / "deep").rmdir()
    (folder / "drafts" / "deep").symlink_to(folder / "private")
    with pytest.raises(OSError):
        target.open("w")
    assert not (folder / "private" / "x").exists()


def test_a_file_that_is_swapped_for_a_link_after_the_check_is_not_followed(folder: Path):
    target = PathTarget.of("drafts/x", folder)
    (folder / "drafts" / "x").symlink_to(folder / "private" / "secret.txt")
    for mode in ("r", "w", "a", "x"):
        with pytest.raises(OSError):
            target.open(mode)
    assert (folder / "private" / "secret.txt").read_text() == "secret"


def test_what_was_checked_is_opened(folder: Path):
    with PathTarget.of("drafts/up/drafts/x", folder).open("w") as opened:
        opened.write(b"1")
    with PathTarget.of("drafts/x", folder).open("a") as opened:
        opened.write(b"2")
    with PathTarget.of("drafts/./x", folder).open() as opened:
        assert opened.read() == b"12"
    with pytest.raises(FileExistsError):
        PathTarget.of("drafts/x", folder).open("x")


def test_a_denied_file_is_denied_to_tools_that_do_not_say_what_they_touch(folder: Path):
    rules = Permissions(allow("touch"), deny(target=path("**/*.key")), deny(target=url("evil.example")))
    text = TextTarget("…")
    assert verdict(rules, text, where="drafts/../MASTER.key") == "deny"
    assert verdict(rules, text, where="https://api.EVIL.example./x") == "deny"
    assert verdict(rules, text, where="drafts/x") == "allow"
    for line in ("cat master.key", "cat 'a b.key'", "cp x --to=master.key", "cat < master.key", "ls; cat *.key"):
        assert verdict(rules, CommandTarget.of(line)) == "deny", line
    assert verdict(rules, CommandTarget.of("curl https://evil.example/x")) == "deny"
    assert verdict(rules, CommandTarget.of("cat notes.txt")) == "allow"
    assert os.sep  # the lists above are those of POSIX


# -- commands ----------------------------------------------------------------------------------------------------------

NOT_GIT_STATUS = [
    "git status; rm -rf /",
    "git status;rm x",
    "git status && rm x",
    "git status&&rm x",
    "git status || rm x",
    "git status | sh",
    "git status & rm x",
    "git status\nrm x",
    "git status\r\nrm x",
    "git status\rrm x",
    "git status\x0brm x",
    "git status\u2028rm x",
    "git status\u00a0-s",
    "git status $(rm x)",
    "git status `rm x`",
    "git status ${x}",
    "git status $x",
    'git status "$(rm x)"',
    'git status "`rm x`"',
    'git status "$x"',
    "git status > /etc/passwd",
    "git status >> x",
    "git status < x",
    "git status <(rm x)",
    "git status >(rm x)",
    "git status << EOF\nrm\nEOF",
    "git status 2>&1",
    "git status *",
    "git status ?",
    "git status [a]",
    "git status {a,b}",
    "git status ~",
    "git status ~root",
    "git status !!",
    "git status #x",
    "git status \\; rm x",
    "git status \\\nrm x",
    "git stat\\us",
    "(git status)",
    "{ git status; }",
    "! git status",
    "if git status; then rm x; fi",
    "for x in y; do rm x; done",
    "while git status; do rm x; done",
    "function git { rm x; }; git status",
    "git() { rm x; }; git status",
    "alias git=rm; git status",
    "X=1 git status",
    "PATH=/tmp git status",
    "GIT_PAGER=rm git status",
    "env git status",
    "sudo git status",
    "command git status",
    "builtin git status",
    "exec git status",
    "eval git status",
    "time git status",
    "nohup git status",
    "xargs git status",
    "sh -c 'git status; rm x'",
    "bash -c 'git status'",
    "./git status",
    "/tmp/git status",
    "../git status",
    "~/git status",
    "Git status",
    "GIT status",
    "git Status",
    "git -c alias.x=!rm status",
    "git --exec-path=/tmp status",
    "git -C /etc status",
    "git\u200b status",
    "g\u0456t status",
    "git\x00status",
    "git\x1b[2J status",
    "git statusx",
    "git stash",
    "gitstatus",
    "git",
    "status git",
    "git 'status; rm x'",
    "git 'status",
    'git "status',
    "'git status'",
    '"git status"',
    "''",
    "git  ''",
    "'' git status",
    ". git status",
    "source git status",
    "coproc git status",
    "trap 'rm x' EXIT; git status",
    "git status ^x",
    "-git status",
]

GIT_STATUS = [
    "git status",
    " git  status ",
    "\tgit\tstatus -s",
    "git status --short",
    "git status 'a b'",
    'git status "a b"',
    "git 'status'",
    "'git' status",
    "g'i't status",
    "git status ''",
    "git status a=b",
    "git status '$x'",
    "git status 'a;b'",
    "git status -- -x",
    "git status é",
    "git status if",
    ["git", "status", "; rm -rf /"],
    ["git", "status", "$(rm x)"],
]


@pytest.mark.parametrize("given", NOT_GIT_STATUS)
def test_no_other_command_is_allowed(given: str):
    target = resolve(CommandTarget.of, given)
    for pattern in (command("git status"), "git status", "git status *"):
        assert verdict(Permissions(allow(target=pattern)), target) == "deny"


@pytest.mark.parametrize("given", GIT_STATUS, ids=str)
def test_the_allowed_command_is_allowed_however_it_is_quoted(given: object):
    target = CommandTarget.of(given)  # type: ignore[arg-type]
    assert target.argv[:2] == ("git", "status")
    for pattern in (command("git status"), "git status", "git status *", command("git *")):
        assert verdict(Permissions(allow(target=pattern)), target) == "allow"


SPELLINGS_OF_RM = [
    "rm x",
    "RM x",
    "/bin/rm x",
    "../bin/rm x",
    "'rm' x",
    "r'm' x",
    '"rm" x',
    "ls; rm x",
    "ls && rm x",
    "ls|rm x",
    "ls\nrm x",
    "(rm x)",
    "{ rm x; }",
    "$(rm x)",
    "`rm x`",
    "X=1 rm x",
    "if true; then rm x; fi",
    "ls & /bin/rm x",
    "eval rm x",
    "exec rm x",
    "command rm x",
    ["rm", "x"],
    ["/usr/bin/rm", "x"],
]

MAYBE_RM = [
    "sudo rm x",
    "env rm x",
    "xargs rm",
    "nice -n 5 rm x",
    "timeout 5 rm x",
    "busybox rm x",
    "sh -c 'rm x'",
    "bash -c 'ls; rm x'",
    "find . -exec rm {} +",
    "r\\m x",
    "r''\\m x",
    "$(echo r)m x",
    "${x}m x",
    "$x",
    "`echo cm | tr c r` x",
    "ls > x",
    "ls | sh",
    "base64 -d x | sh",
    ["sudo", "/bin/rm", "x"],
    ["sh", "-c", "rm x"],
]


@pytest.mark.parametrize("given", SPELLINGS_OF_RM, ids=str)
def test_no_spelling_evades_a_denial_of_a_command(given: object):
    rules = Permissions(allow("touch"), deny(target=command("rm")), handler=lambda _: [])
    assert verdict(rules, CommandTarget.of(given)) == "deny"  # type: ignore[arg-type]


@pytest.mark.parametrize("given", MAYBE_RM, ids=str)
def test_a_command_that_may_run_a_denied_one_is_never_allowed_by_a_rule(given: object):
    rules = Permissions(allow("touch"), deny(target=command("rm")), handler=lambda _: [])
    assert verdict(rules, CommandTarget.of(given)) in {"ask", "deny"}  # type: ignore[arg-type]
    without_a_person = Permissions(allow("touch"), deny(target=command("rm")))
    assert verdict(without_a_person, CommandTarget.of(given)) == "deny"  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["ls", "echo form", "git status", "ls 'a b'", "farm x", "rmdir x"])
def test_a_denial_of_a_command_leaves_others_alone(given: str):
    assert verdict(Permissions(allow("touch"), deny(target=command("rm"))), CommandTarget.of(given)) == "allow"


# -- addresses ---------------------------------------------------------------------------------------------------------

NOT_THE_DOCS = [
    "http://docs.example/3/x",
    "https://docs.example:444/3/x",
    "https://docs.example.evil.example/3/x",
    "https://evil.example/docs.example/3/x",
    "https://evil.example/#docs.example/3/",
    "https://evil.example?docs.example/3/",
    "https://user@docs.example/3/x",
    "https://docs.example@evil.example/3/x",
    "https://docs.example:443@evil.example/3/x",
    "https://docs.example%40evil.example/3/x",
    "https://docs.example%2eevil.example/3/",
    "https://docs.example\\@evil.example/3/",
    "https://evil.example\\docs.example/3/",
    "https:\\\\docs.example\\3\\x",
    "https:/docs.example/3/x",
    "https:docs.example/3/x",
    "//docs.example/3/x",
    "docs.example/3/x",
    "https:///3/x",
    "https://",
    "https://docs.example/3",
    "https://docs.example/",
    "https://docs.example",
    "https://docs.example/3/../x",
    "https://docs.example/3/..",
    "https://docs.example/3/%2e%2e/x",
    "https://docs.example/3/%2E%2E/x",
    "https://docs.example/3/.%2e/x",
    "https://docs.example/3/x/../../y",
    "https://docs.example/3/./../x",
    "https://docs.example/x/3/",
    "https://docs.example//3/x",
    "https://docs.example/%33x/y",
    "https://docs.example/3/%",
    "https://docs.example/3/%2",
    "https://docs.example/3/%zz",
    "https://docs.example/3/\nx",
    "https://docs.example/3/\tx",
    "https://docs.ex\nample/3/x",
    "https://docs.example/3/ x",
    " https://docs.example/3/x",
    "https://docs.example:/3/\x00",
    "https://docs.example:0/3/x",
    "https://docs.example:65536/3/x",
    "https://docs.example:4 43/3/x",
    "https://docs.example:+443/3/x",
    "https://docs.example:443:443/3/x",
    "https://d\u043ecs.example/3/x",
    "https://docs.example\u3002evil.example/3/x",
    "https://docs\u200b.example/3/x",
    "https://xn--dcs-hdd.example/3/x",
    "https://stra\u00dfe.example/3/x",
    "https://docs..example/3/x",
    "https://.docs.example/3/x",
    "https://docs.example,evil.example/3/x",
    "https://[docs.example]/3/x",
    "https://docs.example]/3/x",
    "javascript://docs.example/3/x",
    "file://docs.example/3/x",
    "ftp://docs.example/3/x",
    "https+x://docs.example/3/x",
    "view-source:https://docs.example/3/x",
    "blob:https://docs.example/3/x",
    "https://sub.docs.example/3/x",
    "https://docsXexample/3/x",
]

THE_DOCS = [
    "https://docs.example/3/x",
    "https://docs.example/3/",
    "HTTPS://DOCS.EXAMPLE/3/x",
    "https://docs.example:443/3/x",
    "https://docs.example./3/x",
    "https://docs.example:/3/x",
    "https://docs.example/3/x?y=../..#z",
    "https://docs.example/3/x/../y",
    "https://docs.example/%33/x",
    "https://docs.example/./3/x",
    "https://docs.example/x/../3/y",
    "https://docs.example/3/%2F..%2Fx",  # one step, and no way up
    "https://docs.example/3/é",
    "https://\uff44ocs.example/3/x",
]


@pytest.mark.parametrize("given", NOT_THE_DOCS)
def test_no_other_address_is_allowed(given: str):
    target = resolve(UrlTarget.of, given)
    for pattern in (url("https://docs.example/3/**"), "https://docs.example/3/**", url("docs.example/3/**")):
        assert verdict(Permissions(allow(target=pattern)), target) == "deny"


@pytest.mark.parametrize("given", THE_DOCS)
def test_every_spelling_of_an_allowed_address_is_allowed(given: str):
    target = UrlTarget.of(given)
    for pattern in (url("https://docs.example/3/**"), "https://docs.example/3/**", url("docs.example")):
        assert verdict(Permissions(allow(target=pattern)), target) == "allow"


SPELLINGS_OF_THIS_MACHINE = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0X7F.0.0.1/",
    "http://0177.0.0.1/",
    "http://0177.1/",
    "http://017700000001/",
    "http://127.0.0.1./",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/",
    "https://127.0.0.1:8443/x",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://127\u30020\u30020\u30021/",
]


@pytest.mark.parametrize("given", SPELLINGS_OF_THIS_MACHINE)
def test_no_notation_evades_a_denial_of_an_ip_address(given: str):
    rules = Permissions(allow("touch"), deny(target=url("127.0.0.1")))
    assert verdict(rules, UrlTarget.of(given)) == "deny"


@pytest.mark.parametrize(
    "given",
    [
        "https://evil.example/admin",
        "https://EVIL.example/admin",
        "https://evil.example./ADMIN/x",
        "https://evil.example:8443/admin",
        "http://evil.example/admin",
        "https://api.evil.example/admin",
        "https://evil.example//admin",
        "https://evil.example/x/../admin",
        "https://evil.example/%61dmin",
        "https://evil.example/x/%2e%2e/admin",
        "https://evil.example/x%2f..%2fadmin",
        "https://evil.example/x/%252e%252e/admin",
        "https://evil.example/x%5c..%5cadmin",
        "https://evil.example/admin?x",
        "https://evil.example/admin/deep/er",
    ],
)
def test_no_spelling_evades_a_denial_of_an_address(given: str):
    rules = Permissions(allow("touch"), deny(target=url("evil.example/admin")))
    assert verdict(rules, UrlTarget.of(given)) == "deny"
    assert verdict(Permissions(allow("touch"), deny(target="evil.example/admin")), UrlTarget.of(given)) == "deny"


@pytest.mark.parametrize("given", ["https://evil.example/x", "https://notevil.example/admin", "https://good.example/"])
def test_a_denial_of_an_address_leaves_others_alone(given: str):
    assert verdict(Permissions(allow("touch"), deny(target=url("evil.example/admin"))), UrlTarget.of(given)) == "allow"


def test_what_was_checked_is_what_is_fetched():
    target = UrlTarget.of("HTTP://EX%41mple.org".replace("%41", "A") + ":80/a/%2e%2e/%7Eb%2fc?d=%41#e")
    assert target.url == "http://example.org/~b%2Fc?d=%41"
    assert UrlTarget.of(target.url) == target
    assert UrlTarget.of("wss://[2001:DB8::1]:8443").url == "wss://[2001:db8::1]:8443/"


# -- what cannot be computed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [[allow()], [allow("touch")], [allow(target="*")], [allow(), deny("other")]], ids=str)
def test_a_call_without_a_target_is_allowed_by_no_rule(rules: list[object]):
    target = UncomputableTarget("it has none")
    assert verdict(Permissions(*rules), target) == "deny"  # type: ignore[arg-type]
    assert verdict(Permissions(*rules, handler=lambda _: []), target) == "ask"  # type: ignore[arg-type]
    assert verdict(Permissions(*rules, deny("touch"), handler=lambda _: []), target) == "deny"  # type: ignore[arg-type]
