"""A day's work by the front door: a failing test is fixed in the sandbox, the fix is reviewed, and it is undone.

The commands are those of docs/how-to/fix-a-test.md.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.chat.tmux_terminal import TmuxTerminal
from tests.cli.model_server import address_model, read_results, serve_model
from tests.docs.pages import ROOT, blocks_of
from tests.reviewing.conftest import FINDING, git

pytestmark = [
    pytest.mark.needs("tmux", "bubblewrap"),
    pytest.mark.packages("prompt_toolkit", "rich", "tree_sitter_bash"),
]

PAGE = ROOT / "docs" / "how-to" / "fix-a-test.md"
WRONG = "echo $(( $1 + $2 ))\n"
RIGHT = "echo $(( $1 * $2 ))\n"
TEST = """\
cost=$(sh price.sh 3 4)
if [ "$cost" != 12 ]; then echo "FAILED: 3 pieces at 4 cost $cost, not 12"; exit 1; fi
echo PASSED
"""


def fix(body):
    """Decide like somebody who runs the test, reads, edits, and runs the test again: each step looks at the last."""
    results = read_results(body)
    match results:
        case []:
            return "bash", {"command": "touch ../outside; sh test_price.sh"}
        case [failed] if "FAILED: 3 pieces at 4 cost 7, not 12" in failed:
            return "read", {"path": "price.sh"}
        case [_, source] if "$1 + $2" in source:
            return "edit", {"path": "price.sh", "old_string": "$1 + $2", "new_string": "$1 * $2"}
        case [_, _, _]:
            return "bash", {"command": "sh test_price.sh"}
        case [_, _, _, passed] if "PASSED" in passed:
            return "The test passes: the price is a product now."
    return f"I am lost: {results}"


def review(body):
    """Report a finding about the line that the diff in the prompt adds."""
    assert "+echo $(( $1 * $2 ))" in json.dumps(body["messages"])
    finding = {**FINDING, "severity": "minor", "file": "price.sh", "line": 1, "title": "a price of no pieces"}
    return json.dumps({"summary": "The price is a product.", "findings": [finding]})


@pytest.fixture
def project(cold_shell):
    """A repository whose test fails, and a shell in it."""
    root = cold_shell.folder
    git(root, "init", "-q", "-b", "main")
    (root / "price.sh").write_text(WRONG)
    (root / "test_price.sh").write_text(TEST)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Prices")
    git(root, "checkout", "-q", "-b", "fix")
    assert cold_shell.run("trust").returncode == 0
    return cold_shell


def read_commands() -> list[list[str]]:
    """Return the arguments of each perdure command of the page, in order."""
    lines = [line for block in blocks_of(PAGE) if block.language == "sh" for line in block.text.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("perdure ")]


def run_test(folder: Path) -> str:
    return subprocess.run(["sh", "test_price.sh"], cwd=folder, capture_output=True, text=True, check=False).stdout


def test_a_failing_test_is_fixed_in_the_sandbox_reviewed_and_undone(project):
    root = project.folder
    to_fix, to_list, to_review, to_chat = read_commands()
    assert run_test(root) == "FAILED: 3 pieces at 4 cost 7, not 12\n"

    with serve_model(fix) as server:
        project.environment |= address_model(server)
        fixed = project.run(*to_fix)
    assert (fixed.returncode, fixed.stdout) == (0, "The test passes: the price is a product now.\n"), fixed.stderr
    assert (root / "price.sh").read_text() == RIGHT
    assert not (root.parent / "outside").exists()  # the sandbox has a parent folder of its own
    assert "PASSED" in run_test(root)

    assert "-echo $(( $1 + $2 ))\n+echo $(( $1 * $2 ))\n" in project.run(*to_list).stdout

    git(root, "commit", "-q", "-am", "A price is a product")
    with serve_model(review) as server:
        project.environment |= address_model(server)
        reviewed = project.run(*to_review, "--json")
    assert reviewed.returncode == 0, reviewed.stderr
    (found,) = json.loads(reviewed.stdout)["findings"]
    assert (found["finding"]["file"], found["finding"]["title"]) == ("price.sh", "a price of no pieces")
    assert found["is_changed_file"]

    undo_in_chat(project, to_chat)
    assert (root / "price.sh").read_text() == WRONG
    assert run_test(root) == "FAILED: 3 pieces at 4 cost 7, not 12\n"
    assert git(root, "status", "--short") == " M price.sh\n"


def undo_in_chat(project, arguments: list[str]) -> None:
    """Open the session of the fix in a chat, undo its changes, and leave."""
    command = [sys.executable, "-m", "perdure", *arguments]
    environment = {**project.environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory(prefix="t") as sockets:  # their paths must be short
        terminal = TmuxTerminal(Path(sockets) / "0", command, project.folder, environment)
        terminal.start(100, 50)
        try:
            terminal.await_screen("The test passes: the price is a product now.", "ready")
            terminal.type("/undo ")
            terminal.press("Enter")
            terminal.await_screen("- restored  price.sh")
            terminal.type("/quit ")
            terminal.press("Enter")
            assert terminal.await_end() == 0
        finally:
            terminal.close()
