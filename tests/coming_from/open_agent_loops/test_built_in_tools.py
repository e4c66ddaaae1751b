"""The built-in tools of Open Agent Loops and their seams to the host, with our names."""

import pytest

from perdure import Agent
from perdure._io.files.jail import compute_digest
from perdure._tools.files.edits import apply_edit
from perdure.hosts import (
    BrowserElement,
    BrowserFrame,
    BrowserSnapshot,
    CapturedStream,
    Confinement,
    FileContent,
    FolderEntry,
    GlobQuery,
    GlobResult,
    LocalFiles,
    LocalSearch,
    LocalShell,
    SearchMatch,
    SearchQuery,
    SearchResult,
    ShellCommand,
    ShellResult,
    WebFetchRequest,
    WebFetchResult,
    WebSearchQuery,
    WebSearchResult,
)
from perdure.permissions import PathTarget, allow_all
from perdure.testing import MemoryFiles, ScriptedBrowser, ScriptedModel, ScriptedPage, ScriptedShell, ScriptedWeb, call
from perdure.tools import (
    TextEdit,
    browser_tools,
    build_output,
    code_execution_tool,
    edit_tool,
    format_browser_element,
    format_browser_snapshot,
    format_fetched_page,
    format_matches,
    format_page,
    format_search_results,
    glob_tool,
    grep_tool,
    read_tool,
    shell_tools,
    web_fetch_tool,
    web_search_tool,
    write_tool,
)
from tests.coming_from.shows import shows


class Host:
    """A host of our own: its files are in a dictionary, and it remembers what it was asked for."""

    root = "/host"

    def __init__(self, **files: str) -> None:
        self.files = {name.replace("_", "."): text.encode() for name, text in files.items()}
        self.asked: list[object] = []

    def resolve(self, path: str) -> PathTarget:
        return PathTarget(f"/host/{path}" if path != "." else "/host", "/host")

    def check(self, target, *, write=False, is_folder=False):
        del target, write, is_folder

    def show(self, target: PathTarget) -> str:
        return target.path.removeprefix("/host").strip("/") or "."

    async def read_file(self, target: PathTarget) -> FileContent:
        self.asked.append(target)
        data = self.files[self.show(target)]
        return FileContent(data, compute_digest(data))

    async def list_folder(self, _target: PathTarget) -> list[FolderEntry]:
        return [FolderEntry(name, "file", len(data)) for name, data in self.files.items()]

    async def write_file(self, target: PathTarget, data: bytes, *, expected: str | None = None) -> FileContent:
        self.asked.append((target, data, expected))
        self.files[self.show(target)] = data
        return FileContent(data, compute_digest(data))

    async def search_lines(self, _target: PathTarget, query: SearchQuery) -> SearchResult:
        self.asked.append(query)
        return SearchResult((SearchMatch("a.txt", 2, "TODO: splice"),))

    async def find_files(self, _target: PathTarget, query: GlobQuery) -> GlobResult:
        self.asked.append(query)
        return GlobResult(("a.txt", "b.txt"))


def session_with(*tools):
    return Agent(ScriptedModel(), tools=list(tools), permission=allow_all).session()


# -- reading -----------------------------------------------------------------------------------------------------------


@shows("open-agent-loops", "FileReadBackend", "FileReadRequest", "FileReadResult", "readTool", 'tool."read"')
async def test_a_slice_of_a_file_is_read_from_a_host_of_ones_own():
    host = Host(a_txt="one\ntwo\nthree\nfour\n")
    session = session_with(read_tool(host))
    result = await session.call("read", {"path": "a.txt", "offset": 2, "limit": 2, "line_numbers": True})
    assert result.text == "2: two\n3: three\n[Showing lines 2-3 of 4. Use offset=4 to continue.]"
    assert host.asked == [PathTarget("/host/a.txt", "/host")]
    assert (await host.read_file(host.resolve("a.txt"))).data == b"one\ntwo\nthree\nfour\n"
    assert (await session.call("read", {"path": "a.txt"})).text == "one\ntwo\nthree\nfour"


@shows("open-agent-loops", "formatFileContent")
def test_a_slice_of_a_file_is_one_text():
    assert format_page(b"one\ntwo\n", "a.txt", 1, 10, 1000, line_numbers=True) == "1: one\n2: two"
    assert format_page(b"", "a.txt", 1, 10, 1000, line_numbers=True) == "(empty file)"


# -- writing and editing -----------------------------------------------------------------------------------------------


@shows("open-agent-loops", "FileWriteBackend", "FileWriteRequest", "FileWriteResult", "writeTool", "formatWriteResult")
async def test_a_whole_file_is_written_to_a_host_of_ones_own():
    host = MemoryFiles()
    session = session_with(write_tool(host))
    result = await session.call("write", {"path": "notes/new.txt", "content": "new"})
    assert (result.status, result.text) == ("ok", "created notes/new.txt: 3 bytes")
    assert host.files == {"notes/new.txt": b"new"}
    own = Host()
    state = await own.write_file(own.resolve("b.txt"), b"two")
    assert (state.data, state.digest) == (b"two", compute_digest(b"two"))


@shows("open-agent-loops", 'tool."write"')
async def test_a_file_is_replaced_on_request_and_only_as_it_was_read():
    host = Host(a_txt="one")
    session = session_with(read_tool(host), write_tool(host))
    refused = await session.call("write", {"path": "a.txt", "content": "two", "overwrite": True})
    assert "has not been read" in refused.text
    await session.call("read", {"path": "a.txt"})
    assert "exists" in (await session.call("write", {"path": "a.txt", "content": "two"})).text
    done = await session.call("write", {"path": "a.txt", "content": "two", "overwrite": True})
    assert (done.text, host.files) == ("replaced a.txt: 3 bytes", {"a.txt": b"two"})


@shows("open-agent-loops", "FileEditRequest", "FileEditResult")
def test_an_edit_replaces_a_text_and_refuses_to_guess_which():
    edited = apply_edit("one\ntwo\n", TextEdit("one", "1"))
    assert (edited.text, edited.places) == ("1\ntwo\n", 1)
    with pytest.raises(Exception, match="found 2 times, at lines 1, 2"):
        apply_edit("one\none\n", TextEdit("one", "1"))
    assert apply_edit("one\none\n", TextEdit("one", "1", replace_all=True)).text == "1\n1\n"


@shows("open-agent-loops", "editTool", 'tool."edit"', "formatEditResult")
async def test_a_file_is_edited_and_the_model_sees_the_changed_lines():
    host = Host(a_txt="def sail():\n    return 1\n")
    session = session_with(read_tool(host), edit_tool(host))
    await session.call("read", {"path": "a.txt"})
    result = await session.call("edit", {"path": "a.txt", "old_string": "  return 1", "new_string": "  return 2"})
    assert result.text.splitlines()[0].startswith("edited a.txt: 1 place")
    assert "2:     return 2" in result.text
    missing = await session.call("edit", {"path": "a.txt", "old_string": "return 9", "new_string": "x"})
    assert (missing.status, host.files["a.txt"]) == ("error", b"def sail():\n    return 2\n")


# -- searching ---------------------------------------------------------------------------------------------------------


@shows("open-agent-loops", "SearchBackend", "SearchQuery", "SearchMatch", "searchTool", 'tool."search"')
async def test_a_regular_expression_is_searched_by_a_host_of_ones_own():
    host = Host()
    model = ScriptedModel(call("grep", pattern="todo", ignore_case=True), "One.")
    outcome = await Agent(model, tools=[grep_tool(host, host)]).run("Find the TODOs in this repo.")
    assert outcome.new_messages[2].tool_results[0].text == "a.txt:2: TODO: splice"
    (query,) = host.asked
    assert isinstance(query, SearchQuery)
    assert (query.pattern, query.ignore_case) == ("todo", True)


@shows("open-agent-loops", "formatSearchResults")
def test_matches_are_one_text():
    found = SearchResult((SearchMatch("a.txt", 2, "TODO"), SearchMatch("b.txt", 1, "TODO too")))
    assert format_matches(found) == "a.txt:2: TODO\nb.txt:1: TODO too"
    assert format_matches(SearchResult()) == "(no matches)"


@shows("open-agent-loops", "GlobQuery", "globTool", 'tool."glob"', "formatGlobMatches")
async def test_files_are_listed_by_a_pattern(tmp_path):
    host = Host()
    session = session_with(glob_tool(host, host))
    assert (await session.call("glob", {"pattern": "*.txt"})).text == "a.txt\nb.txt"
    assert [each.pattern for each in host.asked if isinstance(each, GlobQuery)] == ["*.txt"]
    files = LocalFiles(tmp_path)
    (tmp_path / "c.py").write_text("")
    local = session_with(glob_tool(files, LocalSearch(files)))
    assert (await local.call("glob", {"pattern": "**/*.py"})).text == "c.py"
    assert "no files" in (await local.call("glob", {"pattern": "*.rs"})).text


# -- commands and code -------------------------------------------------------------------------------------------------


@shows("open-agent-loops", "ShellBackend", "ShellResult", "shellTool", 'tool."shell"')
async def test_a_command_is_run_by_a_host_of_ones_own():
    failed = ShellResult(exit_code=2, stdout=CapturedStream("out\n"), stderr=CapturedStream("err\n"))
    shell = ScriptedShell({"make": failed, "ls && make": "made"})
    session = session_with(*shell_tools(shell))
    assert (await session.call("bash", {"command": "make"})).text == "out\n[stderr]\nerr\n[exit code: 2]"
    assert (await session.call("bash", {"command": "ls && make"})).text == "made"
    assert [(each.argv, each.line) for each in shell.commands] == [(("make",), ""), ((), "ls && make")]
    started = await session.call("bash", {"command": "make", "background": True})
    assert "Started as job_1" in started.text


@shows("open-agent-loops", "formatShellResult", "formatCodeExecutionResult")
def test_the_result_of_a_command_is_one_text():
    sandbox = Confinement(sandbox="one", network=False)
    good = build_output(ShellResult(exit_code=0, stdout=CapturedStream("out\n")), sandbox, 1)
    bad = build_output(ShellResult(exit_code=3, stderr=CapturedStream("err\n")), sandbox, 1)
    assert (good.content, good.is_error) == ("out", False)
    assert (bad.content, bad.is_error) == ("[stderr]\nerr\n[exit code: 3]", True)
    assert build_output(ShellResult(exit_code=0), sandbox, 1).content == "(no output)"


@shows(
    "open-agent-loops",
    "CodeExecutionBackend",
    "CodeExecutionRequest",
    "CodeExecutionResult",
    "codeExecutionTool",
    'tool."code_execution"',
)
async def test_a_snippet_of_code_is_run_in_a_language(tmp_path):
    async with LocalShell(tmp_path) as shell:
        session = session_with(code_execution_tool(shell))
        result = await session.call("code_execution", {"language": "bash", "code": "echo $((6 * 7))"})
        assert (result.status, result.text) == ("ok", "42")
        direct = await shell.run(ShellCommand(argv=("bash", "-s"), stdin="exit 4"))
        assert direct.exit_code == 4
    own = ScriptedShell({"python3 -": "hi"})
    assert (
        await session_with(code_execution_tool(own)).call("code_execution", {"language": "python", "code": "x"})
    ).text == "hi"
    assert own.commands[0].stdin == "x"


class Web:
    """A web of our own, which remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def check_url(self, _target) -> None:
        pass

    async def fetch(self, request: WebFetchRequest) -> WebFetchResult:
        self.asked.append(request.target.url)
        return WebFetchResult(request.target.url, 200, "text/plain", "hello")

    async def search(self, query: WebSearchQuery) -> list[WebSearchResult]:
        self.asked.append(query)
        return [WebSearchResult("Lamp", "https://example.org/lamp", "It is lit.")]


@shows(
    "open-agent-loops",
    "WebBackend",
    "WebFetchRequest",
    "WebFetchResult",
    "webFetchTool",
    'tool."web_fetch"',
    "WebSearchQuery",
    "WebSearchResult",
    "webSearchTool",
    'tool."web_search"',
)
async def test_a_host_fetches_and_searches_and_the_tools_format_it():
    web = Web()
    model = ScriptedModel(
        call("web_search", query="lamp", max_results=3),
        call("web_fetch", url="https://example.org/lamp", max_bytes=1_000),
        "Done.",
    )
    agent = Agent(model, tools=[web_fetch_tool(web), web_search_tool(web)], permission=allow_all)
    outcome = await agent.run("What is it?")
    texts = [each.text for message in outcome.new_messages for each in message.tool_results]
    assert texts == [
        "[1] Lamp — https://example.org/lamp\nIt is lit.",
        "https://example.org/lamp (200 text/plain)\n\nhello",
    ]
    assert web.asked == [WebSearchQuery("lamp", 3), "https://example.org/lamp"]


@shows(
    "open-agent-loops",
    "BrowserSession",
    "BrowserSnapshot",
    "BrowserElement",
    "browserTools",
    "formatBrowserSnapshot",
    'tool."browser_navigate"',
    'tool."browser_click"',
    'tool."browser_type"',
)
async def test_a_browser_is_navigated_clicked_and_typed_into():
    page = ScriptedPage("Lamps", "", {"Oil": "https://example.org/oil"}, ["Search"])
    browser = ScriptedBrowser({"https://example.org/": page, "https://example.org/oil": "It burns."})
    model = ScriptedModel(
        call("browser_navigate", url="https://example.org/"),
        call("browser_type", ref="e2", text="oil"),
        call("browser_click", ref="e3"),
        "Done.",
    )
    outcome = await Agent(model, tools=browser_tools(browser), permission=allow_all).run("Find the oil lamp.")
    texts = [each.text for message in outcome.new_messages for each in message.tool_results]
    assert texts[0] == '"Lamps" — https://example.org/\n\n[e1] link "Oil"\n[e2] textbox "Search"'
    assert '[e4] textbox "Search" = "oil"' in texts[1]
    assert texts[2].endswith("It burns.")
    element = BrowserElement("e1", "link", "Oil", "https://example.org/")
    frame = BrowserFrame("https://example.org/", format_browser_element(element), [element])
    snapshot = BrowserSnapshot("https://example.org/", "Lamps", [frame])
    assert format_browser_snapshot(snapshot) == '"Lamps" — https://example.org/\n\n[e1] link "Oil"'
    assert snapshot.elements == [element]


@shows("open-agent-loops", "formatWebFetchResult", "formatWebSearchResults")
async def test_pages_and_results_of_the_web_are_formatted():
    page = WebFetchResult("https://example.org/", 404, "text/html; charset=utf-8", b"<p>Not <b>here</b>")
    assert format_fetched_page(page) == "https://example.org/ (404 text/html)\n\nNot here"
    found = [WebSearchResult("A", "https://a.example", "x"), WebSearchResult("B", "https://b.example")]
    assert format_search_results(found) == "[1] A — https://a.example\nx\n[2] B — https://b.example"
    assert format_search_results(await ScriptedWeb().search(WebSearchQuery("x"))) == "No results."
