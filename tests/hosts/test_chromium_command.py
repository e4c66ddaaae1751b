"""How Chromium is found and started, and what is said when it cannot be."""

import pytest

from perdure import ConfigError
from perdure._tools.browser import chromium
from perdure._tools.browser.chromium import build_flags, find_chromium
from perdure._tools.browser.page import describe_playwright_error
from perdure.hosts import EgressPolicy, LocalBrowser


def test_all_connections_are_sent_through_the_proxy():
    flags = build_flags("/profile", "http://127.0.0.1:99", (800, 600), sandbox=True)
    assert {"--proxy-server=http://127.0.0.1:99", "--proxy-bypass-list=<-loopback>", "--disable-quic"} <= {*flags}
    assert "--no-sandbox" not in flags
    assert "--no-sandbox" in build_flags("/profile", "http://127.0.0.1:99", (800, 600), sandbox=False)


def test_the_browser_gets_no_variable_that_may_be_secret(monkeypatch):
    monkeypatch.setenv("PERDURE_TEST_SECRET", "hunter2")
    environment = chromium.build_environment("/folder")
    assert "PERDURE_TEST_SECRET" not in environment
    assert environment["HOME"] == "/folder"


def test_an_error_of_the_driver_is_one_line():
    assert "use browser_download" in describe_playwright_error("Page.goto: Download is starting\nCall log:\n  - x")
    assert "use browser_navigate" in describe_playwright_error("Page.click: Target page has been closed")
    assert describe_playwright_error("\x1b[31mIt\x1b[0m failed\nCall log:\n - x") == "It failed"
    assert describe_playwright_error("") == "the browser failed"


@pytest.mark.packages("playwright")
@pytest.mark.needs("chromium")
def test_what_is_missing_is_named(monkeypatch):
    with pytest.raises(ConfigError, match="there is no such program"):
        LocalBrowser(executable="no-such-chromium")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="apt-get install chromium"):
        find_chromium()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"perdure\[browser\]"):
        LocalBrowser()


@pytest.mark.packages("playwright")
@pytest.mark.needs("chromium")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"policy": 5}, "EgressPolicy"),
        ({"step_seconds": "x"}, "step_seconds"),
        ({"max_sessions": 0}, "max_sessions"),
        ({"max_download_bytes": 0}, "max_download_bytes"),
        ({"viewport": (0, 5)}, "viewport"),
        ({"policy": EgressPolicy(proxy="http://proxy.example:1")}, "proxy"),
    ],
)
def test_bad_options_are_refused(options, expected):
    with pytest.raises(ConfigError, match=expected):
        LocalBrowser(**options)


def test_the_first_name_of_chromium_on_the_path_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("chrome", "chromium-browser", "other"):
        (tmp_path / name).touch(mode=0o755)
    assert find_chromium() == str(tmp_path / "chromium-browser")
    assert find_chromium("other") == find_chromium(tmp_path / "other") == str(tmp_path / "other")
    (tmp_path / "chromium-browser").unlink()
    assert find_chromium() == str(tmp_path / "chrome")


def test_the_browser_is_driven_by_a_pipe_in_a_folder_and_a_window_of_its_own():
    assert build_flags("/profile", "http://127.0.0.1:99", (800, 600), sandbox=True)[-6:] == [
        "--proxy-server=http://127.0.0.1:99",
        "--proxy-bypass-list=<-loopback>",
        "--user-data-dir=/profile",
        "--window-size=800,600",
        "--remote-debugging-pipe",
        "about:blank",
    ]
