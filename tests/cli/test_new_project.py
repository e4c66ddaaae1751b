"""The first hour of a newcomer: every command of docs/how-to/new-project.md, in a fresh clone, up to the trace."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.packages("playwright"), pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "how-to" / "new-project.md"
CLONE = "git clone PATH/TO/REPOSITORY perdure"
NOT_OURS = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache", "node_modules")
MOST_SECONDS = 150
MOST_MS = 60_000


def clone_checkout(target: Path, environment: dict[str, str]) -> None:
    """Clone the repository that is tested, with what is not committed yet; a checkout without git is copied."""

    def git(*words) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["git", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
        )

    if git("rev-parse", "--show-cdup").stdout != "\n":  # it is no repository, or a folder in another one
        shutil.copytree(ROOT, target, ignore=NOT_OURS)
        return
    cloned = git("clone", "--quiet", str(ROOT), str(target))
    assert cloned.returncode == 0, cloned.stderr
    for name in filter(None, git("ls-files", "-z", "--modified", "--others", "--exclude-standard").stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def build_script() -> str:
    """Return what a reader of the page does, as a script for bash. The environment is there already."""
    steps: list[str] = []
    for block in blocks_of(PAGE):
        match block.language:
            case "sh":
                steps.append(block.text)
            case "python":
                steps.append(f"printf %s {shlex.quote(block.text)} > {block.file}")
            case "toml":  # at the top of the file, as the page says
                steps.append(f"printf %s {shlex.quote(block.text)} | cat - perdure.toml > new && mv new perdure.toml")
    script = "\n".join(steps)
    for written, done in {
        CLONE: "",
        "make run ": f"ln -s {shlex.quote(sys.prefix)} .venv\nmake --old-file=env run ",
        "perdure trust perdure.toml\n": "perdure trust --yes perdure.toml\n",  # a person would be asked
    }.items():
        assert script.count(written) == 1, written
        script = script.replace(written, done)
    return f"set -euo pipefail\n{script}\npython -c 'import perdure; print(perdure.__file__)'\n"


def test_every_step_from_a_fresh_clone_to_a_trace_in_the_browser(tmp_path):
    settings = tmp_path / "gitconfig"
    settings.write_text("[safe]\n\tdirectory = *\n")  # the checkout may belong to somebody else
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith(("PERDURE_", "COVERAGE", "MAKE"))},
        "HOME": str(tmp_path / "person"),
        "GIT_CONFIG_GLOBAL": str(settings),
        "PERDURE_HOME": str(tmp_path / "home"),
        "PERDURE_MODEL": "demo",  # tests/cli/test_first_run.py has the model that answers without a key
        "PYTHONPATH": str(tmp_path / "perdure" / "src"),
    }
    clone_checkout(tmp_path / "perdure", environment)
    done = subprocess.run(
        ["bash", "-c", build_script()],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=MOST_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert "391" in said  # make run
    assert "created  perdure.toml" in said
    assert "The tool depth says: 12 metres" in said
    assert "The tool depth says: 9 metres" in said
    assert '✓ depth {"harbour":"Oslo"}' in said
    assert said.splitlines()[-1].startswith(str(tmp_path / "perdure" / "src"))  # of the clone, and of nothing else
    look_at_page(tmp_path / "harbour" / "trace.html", tmp_path / "trace.png")


def look_at_page(page: Path, picture: Path) -> None:
    """Open the trace in a browser, and photograph it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 900, "height": 560})
        opened.set_default_timeout(MOST_MS)
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-ready]", state="attached")
        text = opened.inner_text("body")
        opened.screenshot(path=picture)
        browser.close()
    assert "What is the depth of Bergen?" in text
    assert "And the depth of Oslo?" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    if kept := os.environ.get("PERDURE_KEEP_SCREENSHOT"):  # how docs/images/first-trace.png is made
        shutil.copyfile(picture, kept)
