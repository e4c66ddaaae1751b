"""Read a web page in Chromium, frame by frame: its visible text, and the elements that can be used.

The script runs inside the page, where a hostile page can change what it sees. It can lie about its own content alone:
the address of a frame comes from the browser, and an element is used only in the frame that it was found in.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, ValidationError

from perdure.core.thread_safe_msgspec import convert
from perdure.toolkits.browser_backend import BrowserElement, BrowserFrame
from perdure.toolkits.browser_tools import format_browser_element

if TYPE_CHECKING:
    from playwright.async_api import Frame, JSHandle

MOST_CHARACTERS: Final = 200_000
"""The most text that is read of a frame."""
MOST_ELEMENTS: Final = 1_000
"""The most elements that are read of a frame."""
MOST_FRAMES: Final = 25
"""The most frames of a page that are read."""
_FRAME_SECONDS: Final = 20.0

_SCRIPT: Final = r"""([mostCharacters, mostElements]) => {
  const nodes = [], parts = [];
  let size = 0, isTruncated = false;
  const BLOCKS = new Set(("ADDRESS ARTICLE ASIDE BLOCKQUOTE BR CAPTION DD DETAILS DIV DL DT FIELDSET FIGCAPTION " +
    "FIGURE FOOTER FORM H1 H2 H3 H4 H5 H6 HEADER HR LEGEND LI MAIN NAV OL P PRE SECTION SUMMARY TABLE TR " +
    "UL").split(" "));
  const SKIPPED = new Set(("SCRIPT STYLE NOSCRIPT TEMPLATE HEAD SVG CANVAS VIDEO AUDIO OBJECT EMBED IFRAME " +
    "FRAME").split(" "));
  const ROLES = new Set(("button link textbox searchbox checkbox radio combobox listbox menuitem menuitemcheckbox " +
    "menuitemradio option switch slider spinbutton tab treeitem").split(" "));
  const INPUTS = {button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox",
    radio: "radio", range: "slider", number: "spinbutton", search: "searchbox", file: "file", hidden: ""};
  const flatten = text => String(text || "").replace(/\s+/g, " ").trim().slice(0, 300);
  const push = part => { parts.push(part); size += typeof part === "string" ? part.length : 40; };
  const findRole = (element, tag) => {
    const given = (element.getAttribute("role") || "").split(" ")[0];
    if (ROLES.has(given)) return given;
    if (tag === "A") return element.hasAttribute("href") ? "link" : "";
    if (tag === "BUTTON" || tag === "SUMMARY") return "button";
    if (tag === "TEXTAREA" || element.isContentEditable && !element.parentElement?.isContentEditable) return "textbox";
    if (tag === "SELECT") return "combobox";
    if (tag === "INPUT") return INPUTS[element.type] ?? "textbox";
    return element.hasAttribute("onclick") ? "button" : "";
  };
  const readLabel = label => {  // without the options of a list in it
    const copy = label.cloneNode(true);
    copy.querySelectorAll("select, textarea, script, style").forEach(each => each.remove());
    return copy.textContent;
  };
  const findName = (element, tag) => {
    const ids = (element.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    const labelled = ids.map(id => element.getRootNode().getElementById?.(id)?.innerText).join(" ");
    const labels = element.labels ? [...element.labels].map(readLabel).join(" ") : "";
    const pressed = tag === "INPUT" && ["button", "submit", "reset"].includes(element.type)
      ? element.value || element.type : "";
    const within = ["INPUT", "SELECT", "TEXTAREA"].includes(tag) ? "" : element.innerText ||
      [...element.querySelectorAll("img[alt]")].map(each => each.alt).join(" ");
    return flatten(labelled) || flatten(element.getAttribute("aria-label")) || flatten(labels) || flatten(pressed) ||
      flatten(within) || flatten(element.getAttribute("alt")) || flatten(element.getAttribute("placeholder")) ||
      flatten(element.getAttribute("title")) || flatten(element.getAttribute("name"));
  };
  const describe = (element, tag, role) => {
    const found = {role, name: findName(element, tag), state: []};
    if (tag === "SELECT") {
      found.options = [...element.options].slice(0, 50).map(each => flatten(each.label));
      found.value = flatten(element.selectedOptions[0]?.label);
    } else if (tag === "TEXTAREA" || tag === "INPUT" && !["button", "checkbox", "radio"].includes(role)) {
      found.value = element.type === "password" ? (element.value ? "•••" : "") : flatten(element.value);
    }
    if (element.checked || element.getAttribute("aria-checked") === "true") found.state.push("checked");
    if (element.disabled || element.getAttribute("aria-disabled") === "true") found.state.push("disabled");
    if (element.getAttribute("aria-expanded") === "true") found.state.push("expanded");
    return found;
  };
  const walk = (node, depth) => {
    if (size > mostCharacters || nodes.length >= mostElements || depth > 300) { isTruncated = true; return; }
    if (node.nodeType === 3) { const text = node.data.replace(/\s+/g, " "); if (text) push(text); return; }
    if (node.nodeType !== 1) return;
    const tag = node.tagName.toUpperCase();
    if (tag === "IMG") { if (node.alt) push(`[image: ${flatten(node.alt)}]`); return; }
    if (SKIPPED.has(tag)) return;
    const isContents = getComputedStyle(node).display === "contents";
    if (!isContents && !node.checkVisibility({opacityProperty: true, visibilityProperty: true})) return;
    const role = findRole(node, tag);
    if (role) {
      push({index: nodes.push(node) - 1, ...describe(node, tag, role)});
      if (!["option", "treeitem"].includes(role)) return;
    }
    const isBlock = BLOCKS.has(tag);
    if (isBlock) push("\n");
    if (/^H[1-6]$/.test(tag)) push("#".repeat(+tag[1]) + " ");
    if (tag === "LI") push("- ");
    if (tag === "TD" || tag === "TH") push(" | ");
    for (const child of (node.shadowRoot || node).childNodes) walk(child, depth + 1);
    if (isBlock) push("\n");
  };
  if (document.body) walk(document.body, 0);
  return {nodes, data: {title: flatten(document.title), parts, isTruncated}};
}"""


class _FoundElement(Struct):
    """An element as the script describes it."""

    index: int
    role: str
    name: str
    value: str = ""
    state: list[str] = []
    options: list[str] = []


class _FoundDocument(Struct, rename="camel"):
    """A document as the script describes it."""

    title: str
    parts: list[str | _FoundElement]
    is_truncated: bool


class KnownElement(Struct, frozen=True):
    """An element in the latest snapshot of a browser session's page, and where to find it in the page."""

    element: BrowserElement
    session: str
    frame: "Frame"
    nodes: "JSHandle"
    index: int
    """Its place in `nodes`."""


class FrameSnapshot(Struct, frozen=True):
    """The content of a page's frame as it was read: title, text and elements."""

    title: str
    frame: BrowserFrame
    elements: Sequence[KnownElement]


async def read_frame(frame: "Frame", session: str, new_ref: Callable[[], str]) -> FrameSnapshot | None:
    """Read the text and elements of a frame; `None` if it changes meanwhile, does not react, or sends invalid data."""
    from playwright.async_api import Error

    url = frame.url
    try:
        async with asyncio.timeout(_FRAME_SECONDS):
            handle = await frame.evaluate_handle(_SCRIPT, [MOST_CHARACTERS, MOST_ELEMENTS])
            nodes = await handle.get_property("nodes")
            found = convert(await (await handle.get_property("data")).json_value(), _FoundDocument)
    except (Error, TimeoutError, ValidationError):
        return None
    if frame.url != url:
        return None
    elements: list[KnownElement] = []
    pieces: list[str] = []
    for part in found.parts:
        if isinstance(part, str):
            pieces.append(part)
            continue
        element = _build_element(part, new_ref(), url)
        elements.append(KnownElement(element, session, frame, nodes, part.index))
        pieces.append(f" {format_browser_element(element)} ")
    text = _join_lines("".join(pieces))
    shown = BrowserFrame(url, text[:MOST_CHARACTERS], tuple([each.element for each in elements]), found.is_truncated)
    return FrameSnapshot(found.title, shown, elements)


def _build_element(found: _FoundElement, ref: str, url: str) -> BrowserElement:
    return BrowserElement(ref, found.role, found.name, url, found.value, tuple(found.state), tuple(found.options))


def _join_lines(text: str) -> str:
    """Return a text with one space between words, and without empty lines."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return "\n".join([line for line in lines if line.strip("-#| ")])
