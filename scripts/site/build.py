"""Build the site of the documentation into build/site: static files, with search, that need no server.

    python -m scripts.site.build           after `make site-env`, which makes .venv-docs
    python -m scripts.site.build FOLDER    into another folder

A warning of Sphinx, such as a link that leads nowhere or a page that the sidebar does not reach, fails the build.
"""

import subprocess
import sys
from pathlib import Path

from scripts.site.navigation import ROOT, find_pages

PYTHON = ROOT / ".venv-docs" / "bin" / "python"
OUTPUT = ROOT / "build" / "site"


def build(output: Path = OUTPUT) -> subprocess.CompletedProcess[str]:
    """Run Sphinx; its parsed pages are kept beside the site, so that the next build reads what has changed only."""
    command: list[str | Path] = [
        PYTHON,
        "-m",
        "sphinx",
        "--quiet",
        "--fail-on-warning",
        "--conf-dir",
        ROOT / "scripts" / "site",
    ]
    command += ["--doctree-dir", output.with_name(f"{output.name}-doctrees"), ROOT, output]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def main(*arguments: str) -> int:
    """Build, and say where the site is or what is wrong."""
    output = Path(*arguments).resolve() if arguments else OUTPUT
    if not PYTHON.exists():
        print("site: there is no .venv-docs, which has Sphinx: run `make docs`", file=sys.stderr)
        return 1
    done = build(output)
    if done.returncode != 0:
        print(f"site: {done.stderr.strip()}\nsite: mend the warnings above, and build again", file=sys.stderr)
        return 1
    print(f"site: {len(find_pages())} pages; open {output / 'index.html'} in a browser")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
