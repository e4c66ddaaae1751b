"""Install the libraries of the comparison, each in an environment of its own below `.venv-bench`.

    python -m bench.peers.environments            all of them; `make peers` and `make bench` do this
    python -m bench.peers.environments agno       one of them

A library that cannot be installed is named with the reason, and left out of the comparison. uv does the work where it
is on PATH, pip otherwise; the package index comes from their own settings.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence

from bench.peers.catalogue import ENVIRONMENTS, PEERS, ROOT, Peer

MOST_SECONDS = 900


class InstallError(Exception):
    """A library could not be installed; the message says why."""


def run(*command: str) -> None:
    """Run a command without its output. Raise `InstallError` with the end of it when it fails."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=MOST_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(str(error)) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise InstallError(lines[-1].strip() if lines else f"exit code {done.returncode}")


def install(peer: Peer) -> None:
    """Make the environment of a library anew. Raise `InstallError` if that fails; nothing is left of it then."""
    folder, uv = ENVIRONMENTS / peer.name, shutil.which("uv")
    shutil.rmtree(folder, ignore_errors=True)
    ENVIRONMENTS.mkdir(exist_ok=True)
    packages = ("-r", str(peer.requirements))
    try:
        if uv:
            run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
            run(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(peer.python), *packages)
        else:
            run(sys.executable, "-m", "venv", str(folder))
            run(str(peer.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    except InstallError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / "installed.txt").write_text(peer.requirements.read_text("utf-8"), "utf-8")


def main(*names: str, peers: Sequence[Peer] = PEERS) -> int:
    """Install what is missing or pinned differently by now; 2 for a name that is unknown, else 0."""
    known = [peer.name for peer in peers]
    if unknown := [name for name in names if name not in known]:
        print(f"peers: {unknown[0]!r} is not one of {', '.join(known)}", file=sys.stderr)
        return 2
    for peer in peers:
        if peer.is_ready or (names and peer.name not in names):
            continue
        print(f"peers: installing {peer.name} in an environment of its own", flush=True)
        try:
            install(peer)
        except InstallError as error:
            print(f"peers: {peer.name} cannot be installed here, and is left out: {error}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
