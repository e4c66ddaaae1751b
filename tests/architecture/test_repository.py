"""What must never be committed: paths of one machine, package hosts, secrets."""

import re
import subprocess

import pytest

from tests.architecture.source import ROOT, repository_files

# Spelled so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+|opt/pypi[\w-]*)/",
    "a package host": r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|deb[.]debian[.]org|\b(?:extra-)?index-url\s*=",
    "a private key": r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----",
    "an API key": r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{24,}|\bAIza[\w-]{35}|\bAKIA[A-Z0-9]{16}\b",
    "a token": r"\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_\w{40,}|\bxox[abprs]-[\w-]{20,}|\bhf_[A-Za-z]{34}",
}


def findings(text: str) -> list[str]:
    """What a text contains that it must not."""
    return [f"{what}: {match[0]!r}" for what, pattern in FORBIDDEN.items() for match in re.finditer(pattern, text)]


def test_no_file_names_a_machine_a_package_host_or_a_secret():
    found = [
        f"{path.relative_to(ROOT)}: {finding}"
        for path in repository_files()
        for finding in findings(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "/ro" + "ot/project/x.py",
        "see /ho" + "me/somebody/notes",
        "--extra-index-" + "url = x",
        "https://pypi" + ".org/simple",
        "-----BEGIN RSA PRIVATE " + "KEY-----",
        "sk-" + "ant-" + "a1" * 20,
        "ghp" + "_" + "a1" * 18,
    ],
)
def test_what_must_not_be_committed_is_recognised(text):
    assert findings(text)


@pytest.mark.parametrize("text", ["the home/garden section", "framework/x.py", "sk-short", "~/.config/perdure"])
def test_what_only_resembles_it_is_let_through(text):
    assert not findings(text)


def test_scripts_can_be_executed():
    for script in [
        ROOT / ".ci" / "run",
        *(path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix),
    ]:
        assert script.stat().st_mode & 0o111, f"{script.name} is not executable: chmod +x it"
        subprocess.run(["bash", "-n", script], check=True)
