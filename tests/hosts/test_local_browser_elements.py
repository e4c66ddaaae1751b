"""An element is used only as it was shown: to the model in the snapshot, and to a person in the question."""

import asyncio
from typing import Any

import pytest
import pytest_asyncio

from perdure import Agent, EffectUnknown, Permissions, ToolError, allow
from perdure.hosts import LocalBrowser, LocalFiles
from perdure.permissions import BoundVault, MemoryVault, SecretBinding, Verdict
from perdure.testing import ScriptedModel
from perdure.tools import browser_tools
from tests.hosts.browser_site import HERE, find_ref, open_site, visit

pytestmark = [
    pytest.mark.needs("chromium"),
    pytest.mark.packages("playwright"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(300),
]
PAGES = {
    "/shop": """<title>Shop</title><form id=form action=/sent><p id=price>Total: 5 €</p>
        <button id=pay type=button onclick="fetch('/own?pay')">Pay</button>
        <label id=label>Name <input id=name oninput="fetch('/own?' + this.value)" onkeydown="fetch('/own?key')"></label>
        <select id=lamp aria-label=Lamp onchange="fetch('/own?lamp')"><option>Oil<option>Gas</select></form>
        <input type=checkbox id=share aria-label=Share onclick="fetch('/own?share')">
        <a id=file href=/own?file download>File</a>""",
    "/keys": """<title>Keys</title><form action=/sent onsubmit="note('submit'); return false"><input aria-label=One>
        <button>Send</button></form><textarea aria-label=Text></textarea><div contenteditable>old</div>
        <input type=checkbox aria-label=Check onchange="note('check ' + checked)"> <input type=number aria-label=Number>
        <select aria-label=Lamp onchange="note(value)"><option>Oil<option>Gas</select>
        <label><input type=radio name=r value=1 onchange="note('first')">First</label>
        <label><input type=radio name=r value=2 onchange="note('second')">Second</label>
        <dialog open><button>Inside</button></dialog><a href="javascript:note('link')">Link</a>
        <form onsubmit="note('alone'); return false"><input aria-label=Alone></form><p id=log>Log:</p><script>
        const note = text => { document.getElementById("log").textContent += " " + text };
        document.addEventListener("keydown", event => { if (event.keyCode === 27) note("escape " + event.code) })
        </script>""",
    "/covered": """<title>Covered</title><button onclick="document.title = 'Clicked'">Go</button><div id=cover
        style="position: fixed; inset: 0"></div>""",
    "/deep": """<title>Deep</title><button><b onclick="document.title = 'Inner'">Deep</b></button><my-box></my-box>
        <script>        customElements.define("my-box", class extends HTMLElement { connectedCallback() {
          this.attachShadow({mode: "open"}).innerHTML = "<button>Shadow</button>";
          this.shadowRoot.firstChild.onclick = () => document.title = "Shadow clicked" } })</script>""",
    "/raising": "<title>Raising</title><button onclick=\"document.title = 'Raised'; throw Error('no')\">Throw</button>",
}
CHANGES = {
    "another name": "pay.textContent = 'Pay twice'",
    "another role": "pay.setAttribute('role', 'link')",
    "another text near it": "price.textContent = 'Total: 500 €'",
    "another address of its form": "form.action = 'http://127.0.0.2/stolen'",
    "disabled and thus another state": "pay.disabled = true",
    "another node": "pay.replaceWith(pay.cloneNode(true))",
    "another place": "const frame = document.body.appendChild(document.createElement('iframe'));"
    "frame.contentDocument.body.append(pay)",
    "another address of the page": "history.pushState({}, '', '/admin')",
    "another document": "location = '/shop'",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site():
    async with open_site(PAGES) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with LocalBrowser(HERE, step_seconds=30) as browser:
        yield browser


async def run_script(browser: LocalBrowser, session: str, script: str) -> None:
    """Run a script of the page itself, and wait until a navigation that it begins is over."""
    page = browser._sessions[session]._get_page()
    if script.startswith("location"):
        async with page.expect_navigation():
            await page.evaluate(script)
    else:
        await page.evaluate(script)


@pytest.mark.parametrize("change", CHANGES)
async def test_an_element_that_changes_while_a_person_is_asked_is_not_clicked(browser, site, change):
    asked: list[Any] = []

    async def approve(requests):
        asked.extend(requests)
        await run_script(browser, session.session_id, CHANGES[change])
        return [Verdict(allow=True) for _ in requests]

    rules = Permissions(allow("browser_navigate"), handler=approve)
    session = Agent(ScriptedModel(), tools=browser_tools(browser), permission=rules).session("s")
    await session.call("browser_navigate", {"url": f"{site.base_url}/shop"})
    found = [each.element for each in browser._sessions[session.session_id].elements.values()]
    seen = len(site.received)
    result = await session.call("browser_click", {"ref": next(each.ref for each in found if each.name == "Pay")})
    assert asked[0].arguments["element"] == (
        f'button "Pay" near "Total: 5 € … Name File" leads to {site.base_url}/sent'
    )
    assert result.status == "error"
    assert ("nothing was done, for" in result.text) or ("is not there any more" in result.text), result.text
    assert not [each.path for each in site.received[seen:] if each.path.startswith("/own")]


@pytest.mark.parametrize(
    "tool", ["browser_type", "browser_press", "browser_select", "browser_download", "browser_click"]
)
async def test_no_step_and_no_secret_reaches_an_element_that_has_changed(browser, site, tool, tmp_path):
    name, argument, change = {
        "browser_type": ("Name", {"text": "{{word}}"}, "label.firstChild.data = 'Public comment'"),
        "browser_press": ("Name", {"key": "Enter"}, "form.action = '/elsewhere'"),
        "browser_select": ("Lamp", {"option": "Gas"}, "lamp.setAttribute('aria-label', 'Price')"),
        "browser_download": ("File", {"path": "x"}, "file.href = '/own?other'"),
        "browser_click": ("Share", {}, "share.checked = true"),
    }[tool]

    async def approve(requests):
        await run_script(browser, session.session_id, change)
        return [Verdict(allow=True) for _ in requests]

    rules = Permissions(allow("browser_navigate"), handler=approve)
    binding = SecretBinding(tools=["browser_type"], origins=[site.base_url])
    vault = BoundVault(MemoryVault({"word": "hunter2-and-more"}), {"word": binding})
    tools = browser_tools(browser, files=LocalFiles(tmp_path))
    session = Agent(ScriptedModel(), tools=tools, permission=rules, vault=vault).session("s")
    await session.call("browser_navigate", {"url": f"{site.base_url}/shop"})
    found = [each.element for each in browser._sessions[session.session_id].elements.values()]
    seen = len(site.received)
    result = await session.call(tool, {"ref": next(each.ref for each in found if each.name == name), **argument})
    assert "has changed since the snapshot" in result.text
    assert not [each.path for each in site.received[seen:] if each.path.startswith("/own")]


async def test_an_answer_is_for_the_element_that_was_described_and_a_model_cannot_describe_it(browser, site):
    asked: list[Any] = []

    def approve(requests):
        asked.extend(requests)
        return [Verdict(allow=True, scope="session", covers="arguments") for _ in requests]

    rules = Permissions(allow("browser_navigate"), handler=approve)
    session = Agent(ScriptedModel(), tools=browser_tools(browser), permission=rules).session()
    await session.call("browser_navigate", {"url": f"{site.base_url}/shop"})
    for count in (1, 2):
        found = [each.element for each in browser._sessions[session.session_id].elements.values()]
        ref = next(each.ref for each in found if each.name == "Pay")
        result = await session.call("browser_click", {"ref": ref, "element": 'button "Cancel"'})
        assert result.status == "ok", result.text
        assert len(asked) == count
        assert asked[-1].arguments["element"].startswith('button "Pay" near ')
    await browser.close_session(session.session_id)


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("One", "Enter", "Log: submit"),
        ("Alone", "Enter", "Log: alone"),
        ("One", "a", '"One" = "a"'),
        ("One", "Shift+b", '"One" = "B"'),
        ("Text", "+", '"Text" = "+"'),
        ("old", "x", "x"),
        ("Check", "Space", "Log: check true"),
        ("Number", "ArrowUp", '"Number" = "1"'),
        ("Lamp", "ArrowDown", "Log: Gas"),
        ("First", "ArrowDown", "Log: second"),
        ("Send", "Enter", "Log: submit"),
        ("Link", "Enter", "Log: link"),
        ("Inside", "Escape", "Log: escape Escape"),
    ],
)
async def test_a_key_does_in_its_element_what_it_does_in_a_browser(browser, site, name, key, shown):
    snapshot = await visit(browser, site, "/keys")
    snapshot = await browser.press_key("s", find_ref(snapshot, name), key)
    assert shown in snapshot.frames[0].text
    assert ('"Inside"' in snapshot.frames[0].text) == (key != "Escape")


async def test_text_is_edited_by_keys(browser, site):
    snapshot = await visit(browser, site, "/keys")
    for key in ("a", "b", "c", "ArrowLeft", "Backspace", "Enter", "Home", "Delete", "End", "z", "Tab"):
        snapshot = await browser.press_key("s", find_ref(snapshot, "Text"), key)
    assert await browser._sessions["s"]._get_page().evaluate("document.querySelector('textarea').value") == "a\nz"
    snapshot = await browser.press_key("s", find_ref(snapshot, "Text"), "Control+A")
    snapshot = await browser.press_key("s", find_ref(snapshot, "Text"), "Delete")
    assert await browser._sessions["s"]._get_page().evaluate("document.querySelector('textarea').value") == ""


async def test_an_element_is_clicked_once_nothing_covers_it(browser, site):
    snapshot = await visit(browser, site, "/covered")
    page = browser._sessions["s"]._get_page()
    await page.evaluate("setTimeout(() => cover.remove(), 300)")
    assert (await browser.click("s", find_ref(snapshot, "Go"))).title == "Clicked"
    snapshot = await visit(browser, site, "/covered")
    browser._sessions["s"]._seconds = 3
    with pytest.raises(ToolError, match="something else covers") as raised:
        await browser.click("s", find_ref(snapshot, "Go"))
    assert not isinstance(raised.value, EffectUnknown)
    await browser.close_session("s")


async def test_a_click_reaches_what_is_in_an_element_and_elements_in_shadow_trees(browser, site):
    snapshot = await visit(browser, site, "/deep")
    snapshot = await browser.click("s", find_ref(snapshot, "Deep"))
    assert snapshot.title == "Inner"
    assert (await browser.click("s", find_ref(snapshot, "Shadow"))).title == "Shadow clicked"
    snapshot = await visit(browser, site, "/raising")
    assert (await browser.click("s", find_ref(snapshot, "Throw"))).title == "Raised"


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda browser, find: browser.type_text("s", find("Pay"), "x"), "is not a field that text can be typed into"),
        (lambda browser, find: browser.select_option("s", find("Pay"), "x"), "is not a list to choose from"),
        (lambda browser, find: browser.select_option("s", find("Lamp"), "x"), "has no such option"),
        (lambda browser, find: browser.press_key("s", find("Pay"), "Hyper+x"), "no such modifier as 'Hyper'"),
        (lambda browser, find: browser.press_key("s", find("Pay"), "Any"), "'Any' is no key"),
    ],
)
async def test_a_step_that_an_element_has_not_is_an_error(browser, site, use, problem):
    snapshot = await visit(browser, site, "/shop")
    with pytest.raises(ToolError, match=problem) as raised:
        await use(browser, lambda name: find_ref(snapshot, name))
    assert not isinstance(raised.value, EffectUnknown)


async def test_a_step_in_a_page_that_hangs_is_given_up(browser, site):
    snapshot = await visit(browser, site, "/shop")
    page, ref = browser._sessions["s"]._get_page(), find_ref(snapshot, "Pay")
    browser._sessions["s"]._seconds = 3
    await page.evaluate("void (pay.onclick = () => { for (;;); })")
    with pytest.raises(EffectUnknown, match="the page does not react"):
        await browser.click("s", ref)
    with pytest.raises(ToolError, match="the page does not react"):
        async with asyncio.timeout(60):
            await browser.click("s", ref)
    await browser.close_session("s")
