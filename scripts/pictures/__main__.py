"""Draw the pictures of the documentation again, into docs/images.

    python -m scripts.pictures                 all of them; `make pictures` does this
    python -m scripts.pictures event-tree      one of them

The chat needs tmux, the trace page Chromium; both need the packages of `make env`. Those of the benchmarks are drawn by
`python -m bench.peers --write`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from scripts.pictures import chat, event_tree, run_sequence, trace_page

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ROOT / "docs" / "images"
DRAWN: dict[str, Callable[[], str]] = {
    "event-tree": event_tree.draw_picture,
    "run": run_sequence.draw_picture,
    "chat": chat.draw_picture,
}
"""The pictures that are SVG, by the names of their files."""
TRACE = "trace"


def main(*names: str) -> int:
    """Draw the named pictures, or all; 2 for a name that is unknown."""
    known = [*DRAWN, TRACE]
    if unknown := [name for name in names if name not in known]:
        print(f"pictures: {unknown[0]!r} is not one of {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        if name == TRACE:
            trace_page.take_pictures(IMAGES)
        else:
            (IMAGES / f"{name}.svg").write_text(DRAWN[name](), encoding="utf-8")
        print(f"pictures: {name}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
