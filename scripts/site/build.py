"""Build the site of the documentation into build/site: static files, with search, that need no server.

    python -m scripts.site.build           after `make site-env`, which makes .venv-docs
    python -m scripts.site.build FOLDER    into another folder

A warning of Sphinx, such as a link that leads nowhere or a page that the sidebar does not reach, fails the build. Each
build is a whole one: Sphinx does not renew the sidebar of pages that have not changed.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.site.navigation import ROOT, find_pages

PYTHON = ROOT / ".venv-docs" / "bin" / "python"
OUTPUT = ROOT / "build" / "site"
SITE_MARK = "searchindex.js"
"""A file that every site has, and by which an earlier one is recognized."""


class BuildError(Exception):
    """The site could not be built; the message says why and what to do."""


def clear_earlier_site(output: Path) -> None:
    """Remove an earlier site, with pages that are gone by now. Raise `BuildError` if the folder has anything else."""
    if (output / SITE_MARK).exists():
        shutil.rmtree(output)
    elif output.exists() and any(output.iterdir()):
        raise BuildError(f"{output} has files that are no earlier site, and is left alone: name another folder")


def build(output: Path = OUTPUT) -> None:
    """Run Sphinx. Raise `BuildError` with its warnings if there are any."""
    if not PYTHON.exists():
        raise BuildError("there is no .venv-docs, which has Sphinx: run `make docs`")
    clear_earlier_site(output)
    with tempfile.TemporaryDirectory() as parsed:
        command: list[str | Path] = [PYTHON, "-m", "sphinx", "--quiet", "--fail-on-warning"]
        command += ["--conf-dir", ROOT / "scripts" / "site", "--doctree-dir", parsed, ROOT, output]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{done.stderr.strip()}\nsite: mend the warnings above, and build again")


def main(*arguments: str) -> int:
    """Build, and say where the site is or what is wrong."""
    output = Path(*arguments).resolve() if arguments else OUTPUT
    try:
        build(output)
    except BuildError as error:
        print(f"site: {error}", file=sys.stderr)
        return 1
    print(f"site: {len(find_pages())} pages; open {output / 'index.html'} in a browser")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
