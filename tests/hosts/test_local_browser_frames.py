"""Steps in a hostile page: they happen in the frame that was decided about, whatever covers it or has the focus.

PERDURE_SEARCH=long    tries each attack 20 times
"""

import asyncio
import os
from typing import Any

import pytest
import pytest_asyncio

from perdure import Agent, Permissions, allow, deny
from perdure.hosts import LocalBrowser, LocalFiles
from perdure.permissions import allow_all, url
from perdure.testing import ScriptedModel
from perdure.tools import browser_tools
from tests.hosts.browser_site import HERE, Site, find_ref, open_site, visit

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.packages("playwright"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(900),
]
LONG = os.environ.get("PERDURE_SEARCH") == "long"
TIMES = 20 if LONG else 1

OWN = """<style>iframe {position: fixed; left: 0; top: 0; width: 500px; height: 400px; opacity: 0; border: 0}
    body > * {position: absolute; left: 50px}</style>
    <button style="top: 50px; width: 100px; height: 40px" onclick="fetch('/own?click')">Go</button>
    <input aria-label=Field style="top: 120px" onkeydown="fetch('/own?' + event.key)" oninput="fetch('/own?input')">
    <select aria-label=List style="top: 160px" onchange="fetch('/own?change')"><option>Oil<option>Gas</select>
    <a href=/own?file download style="top: 200px">File</a>"""
BANK = "<iframe src='http://127.0.0.2:PORT/bank'></iframe>"
FRAME = f"{BANK}<script>const bank = document.querySelector('iframe');"
PAGES = {
    "/toggled": f"""{OWN}{FRAME} let on = 0; setInterval(() => {{ on = 1 - on;
        bank.style.pointerEvents = on ? "auto" : "none"; bank.style.zIndex = on ? 9 : -9; }}, 7)</script>""",
    "/moved": f"""{OWN}{FRAME} let on = 0; setInterval(() => {{ on = 1 - on; bank.style.left = on ? 0 : "-900px" }}, 7)
        </script>""",
    "/on-approach": f"""{OWN}{FRAME} bank.style.zIndex = -9;
        const cover = () => bank.style.zIndex = 9;
        for (const each of ["mousemove", "mouseover", "pointerdown", "mousedown", "keydown", "focusin"])
          addEventListener(each, cover, true); setInterval(() => bank.style.zIndex = -9, 50)</script>""",
    "/focus": f"""{OWN}{FRAME} bank.style.zIndex = -9; for (const each of ["focusin", "keydown", "input", "mousedown"])
        addEventListener(each, () => frames[0].focus(), true); setInterval(() => frames[0].focus(), 3)</script>""",
    "/bank": """<body style="margin: 0"><form action=/sent>
        <button style="position: fixed; width: 100%; height: 100%" autofocus>Transfer</button></form><script>
        for (const each of ["mousedown", "mouseup", "click", "keydown", "keypress", "input", "mousemove", "submit"])
          addEventListener(each, event => fetch("/hit?" + each + (event.key || "")), true);
        setInterval(() => document.querySelector("button").focus(), 3)</script>""",
    "/sandboxed": f"""{OWN}{FRAME.replace("<iframe", "<iframe sandbox=allow-forms")} let on = 0; setInterval(() => {{
        on = 1 - on; bank.style.zIndex = on ? 9 : -9 }}, 7)</script>""",
    "/nested": "<title>Nested</title>Hello <iframe src='http://127.0.0.2:PORT/wrapped'></iframe>"
    "<iframe srcdoc='<button>Fine</button>'></iframe>",
    "/wrapped": "<iframe srcdoc='<button>Evil</button> evil words'></iframe><script>"
    "const blob = URL.createObjectURL(new Blob(['<button>Blob</button> evil words'], {type: 'text/html'}));"
    "document.body.append(Object.assign(document.createElement('iframe'), {src: blob}));"
    "document.body.append(Object.assign(document.createElement('iframe'), {src: 'data:text/html,evil words'}));"
    "const blank = document.body.appendChild(document.createElement('iframe'));"
    "blank.contentDocument.body.innerHTML = '<button>Blank</button> evil words'</script>",
    "/gives": "<button onclick=\"frames[0].postMessage('', '*')\">Give</button>"
    "<iframe src='http://127.0.0.2:PORT/given'></iframe>",
    "/given": "<script>onmessage = () => { const made = URL.createObjectURL(new Blob(['evil words']));"
    "Object.assign(document.createElement('a'), {href: made, download: 'x'}).click() }</script>",
}
STEPS = {
    "click": lambda browser, found: browser.click("s", found("Go")),
    "press": lambda browser, found: browser.press_key("s", found("Go"), "Enter"),
    "type": lambda browser, found: browser.type_text("s", found("Field"), "secret", submit=True),
    "key": lambda browser, found: browser.press_key("s", found("Field"), "a"),
    "select": lambda browser, found: browser.select_option("s", found("List"), "Gas"),
    "download": lambda browser, found: browser.download("s", found("File")),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site():
    async with open_site(PAGES) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with LocalBrowser(HERE, step_seconds=30) as browser:
        yield browser


HOSTILE_PAGES = ("/toggled", "/moved", "/on-approach", "/focus", "/sandboxed")
PAGES_AND_STEPS = [
    (page, step)
    for row, page in enumerate(HOSTILE_PAGES)
    for column, step in enumerate(STEPS)
    if LONG or (row + column) % 3 == 0
]
"""Every kind of step in every page; in the short form each page and each step with some of the others."""


async def wait_for_own(site: Site, seen: int) -> list[str]:
    """Return the requests since a number of them, once a step has shown its effect in its own page."""
    async with asyncio.timeout(60):
        while not any(each.path.startswith("/own") for each in site.received[seen:]):  # noqa: ASYNC110 - a browser's
            await asyncio.sleep(0.02)
    return [each.path for each in site.received[seen:]]


@pytest.mark.faults
@pytest.mark.parametrize(("page", "step"), PAGES_AND_STEPS)
async def test_a_step_reaches_its_own_frame_and_no_other(browser, site, page, step):
    for _ in range(TIMES):
        snapshot = await visit(browser, site, page)
        seen = len(site.received)
        await STEPS[step](browser, lambda name, shown=snapshot: find_ref(shown, name))
        paths = await wait_for_own(site, seen)
        assert not [each for each in paths if each.startswith(("/hit", "/sent"))]


async def call_tools(browser: LocalBrowser, site: Site, path: str, permission: Any) -> Any:
    session = Agent(ScriptedModel(), tools=browser_tools(browser), permission=permission).session()
    result = await session.call("browser_navigate", {"url": f"{site.base_url}{path}"})
    return session, result


async def until_shown(session: Any, text: str) -> str:
    async with asyncio.timeout(60):
        while text not in (shown := (await session.call("browser_snapshot", {})).text):  # noqa: ASYNC110 - a browser's
            await asyncio.sleep(0.05)
    return shown


async def test_frames_without_a_host_are_shown_and_used_as_the_document_that_made_them(browser, site):
    session, _ = await call_tools(browser, site, "/nested", allow_all)
    async with asyncio.timeout(60):
        while (await session.call("browser_snapshot", {})).text.count("evil words") < 4:  # noqa: ASYNC110 - a browser's
            await asyncio.sleep(0.05)
    denied = Permissions(allow("*"), deny("browser_*", target=url("http://127.0.0.2/**")))
    session, _ = await call_tools(browser, site, "/nested", denied)
    shown = await until_shown(session, "5 frames are not shown")
    assert "evil" not in shown.lower()
    assert 'button "Fine"' in shown
    found = browser._sessions[session.session_id].elements.values()
    for name in ("Evil", "Blob", "Blank"):
        (ref,) = [each.element.ref for each in found if each.element.name == name]
        refused = await session.call("browser_click", {"ref": ref})
        assert "a rule denies http://127.0.0.2" in refused.text
        found = browser._sessions[session.session_id].elements.values()
    await browser.close_session(session.session_id)


async def test_a_file_of_a_frame_that_a_rule_denies_is_not_kept(browser, site, tmp_path):
    tools = browser_tools(browser, files=LocalFiles(tmp_path))
    rules = Permissions(allow("*"), deny("browser_*", target=url("http://127.0.0.2/**")))
    session = Agent(ScriptedModel(), tools=tools, permission=rules).session()
    await session.call("browser_navigate", {"url": f"{site.base_url}/gives"})
    elements = browser._sessions[session.session_id].elements.values()
    (ref,) = [each.element.ref for each in elements if each.element.name == "Give"]
    refused = await session.call("browser_download", {"ref": ref, "path": "x"})
    assert "the file is not kept: a rule denies blob:http://127.0.0.2" in refused.text
    assert list(tmp_path.iterdir()) == []
    await browser.close_session(session.session_id)
