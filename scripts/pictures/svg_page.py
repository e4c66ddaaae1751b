"""The frame of a drawn picture: a page with its own background, a title and a description, light and dark."""

from collections.abc import Iterable
from html import escape

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
  .note { font-size: 12px; fill: #59636e }
  .over { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  .head { font-weight: 600 }
  .page { fill: #ffffff; stroke: #d1d9e0 }
  .box { fill: #eef6f8; stroke: #0b6e80 }
  .faint { fill: #f6f8fa; stroke: #d1d9e0 }
  .line { stroke: #818b98; fill: none }
  .strong { stroke: #0b6e80; stroke-width: 2; fill: none }
  .dashed { stroke-dasharray: 4 3 }
  .ink { fill: #59636e }
  .dot { fill: #b3500b }
  .ring { fill: none; stroke: #b3500b; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9198a1 } .page { fill: #15191f; stroke: #3d444d }
    .box { fill: #12303a; stroke: #4fb3c6 } .faint { fill: #1c2128; stroke: #3d444d }
    .over { stroke: #15191f } .line { stroke: #767e89 } .strong { stroke: #4fb3c6 } .ink { fill: #9198a1 }
    .dot { fill: #f0883e } .ring { stroke: #f0883e }
  }
"""


def draw_text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def draw_line(x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> str:
    """Return a straight line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{kind}"/>'


def draw_box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """Return a rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" class="{kind}"/>'


def draw_page(width: int, height: int, title: str, description: str, body: Iterable[str]) -> str:
    """Return the whole picture. It loads nothing, and can be read on a light and on a dark page."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *body,
        "</svg>\n",
    )
    return "\n".join(parts)
