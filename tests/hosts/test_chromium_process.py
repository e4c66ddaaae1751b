"""Chromium's process: what it is given, and that nothing of it is left when it ends or does not start."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure import ConfigError, ToolError
from perdure._tools.browser import supervised
from perdure._tools.browser.chromium import (
    ChromiumProcess,
    build_environment,
    require_playwright,
    shadow_desktop_programs,
)

pytestmark = pytest.mark.packages("playwright")
PROXY = cast("Any", SimpleNamespace(url="http://127.0.0.1:9", username="u", password="p"))


class FakePlaywright:
    """The driver, which notes how the browser is started and when all is ended."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.options: dict[str, Any] = {}
        self.problem: BaseException | None = None
        self.chromium = self

    async def start(self) -> "FakePlaywright":
        return self

    async def launch(self, **options: Any) -> Any:
        self.options = options
        if self.problem is not None:
            raise self.problem
        return self

    async def close(self) -> None:
        self.done.append("close")
        raise RuntimeError("the browser is gone")

    async def stop(self) -> None:
        self.done.append("stop")


@pytest.fixture
def playwright(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePlaywright:
    fake = FakePlaywright()
    monkeypatch.setattr("playwright.async_api.async_playwright", lambda: fake)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return fake


async def start() -> ChromiumProcess:
    return await ChromiumProcess.start("/usr/bin/chromium", PROXY, viewport=(30, 20), sandbox=True)


async def test_chromium_is_started_below_a_supervisor_with_a_folder_of_its_own(playwright, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    process = await start()
    folder = Path(process.folder)
    assert (folder.parent, folder.name.startswith("perdure-browser-")) == (tmp_path, True)
    assert (folder / "control").is_fifo()
    assert (folder / "control").stat().st_mode & 0o777 == 0o600
    program = str(Path(supervised.__file__))
    options = playwright.options
    assert options["args"][:6] == ["-I", "-S", program, str(folder / "control"), str(folder), "/usr/bin/chromium"]
    assert f"--user-data-dir={folder / 'profile'}" in options["args"]
    assert {name: value for name, value in options.items() if name not in {"args", "env"}} == {
        "executable_path": sys.executable,
        "ignore_default_args": True,
        "proxy": {"server": "http://127.0.0.1:9", "username": "u", "password": "p"},
        "downloads_path": str(folder / "downloads"),
        "handle_sigint": False,
        "handle_sigterm": False,
        "handle_sighup": False,
        "timeout": 60_000,
    }
    assert "SECRET_TOKEN" not in options["env"]
    browser: Any = process.browser
    assert browser is playwright
    await process.close()
    assert playwright.done == ["close", "stop"]
    assert not list(tmp_path.iterdir())
    await process.close()  # has no effect
    assert playwright.done == ["close", "stop"]


async def test_the_supervisor_is_told_to_end_and_its_end_is_awaited(playwright, monkeypatch, tmp_path):
    process = await start()
    folder = Path(process.folder)
    (folder / "profile").mkdir()
    pipe = os.open(folder / "control", os.O_RDONLY | os.O_NONBLOCK)
    looked: list[bytes] = []

    async def look(seconds: float) -> None:
        assert seconds == 0.02
        looked.append(os.read(pipe, 10) if not looked else b"")
        if len(looked) == 2:
            (folder / "profile").rmdir()

    monkeypatch.setattr(asyncio, "sleep", look)
    await process.close()
    os.close(pipe)
    assert looked == [b"x", b""]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["Error", "OSError"])
async def test_a_browser_that_does_not_start_says_why_and_leaves_nothing(playwright, tmp_path, kind):
    from playwright.async_api import Error

    playwright.problem = (Error if kind == "Error" else OSError)(f"{'x' * 600}it is broken")
    with pytest.raises(ToolError) as raised:
        await start()
    assert str(raised.value) == f"the browser '/usr/bin/chromium' does not start: {'x' * 488}it is broken"
    assert playwright.done == ["stop"]
    assert list(tmp_path.iterdir()) == []


async def test_a_start_that_is_cancelled_leaves_nothing(playwright, tmp_path):
    playwright.problem = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await start()
    assert playwright.done == ["stop"]
    assert list(tmp_path.iterdir()) == []


def test_chromium_gets_few_variables_and_a_home_of_its_own(monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("API_KEY", "secret")
    assert build_environment("/f") == {
        "PATH": "/f/programs:/bin",
        "TZ": "UTC",
        "HOME": "/f",
        "TMPDIR": "/f",
        "XDG_CONFIG_HOME": "/f",
        "XDG_CACHE_HOME": "/f",
    }


def test_what_a_system_lacks_is_named(monkeypatch):
    require_playwright()
    with monkeypatch.context() as patched:
        patched.delattr(os, "mkfifo")
        with pytest.raises(ConfigError, match=r"^LocalBrowser needs named pipes, which this system does not have$"):
            require_playwright()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="needs playwright, which is not installed: pip install"):
        require_playwright()


def test_programs_of_the_desktop_are_hidden_by_some_that_do_nothing(tmp_path, monkeypatch):
    shadow_desktop_programs(str(tmp_path))
    monkeypatch.setenv("PATH", build_environment(str(tmp_path))["PATH"])
    for name in ("xdg-open", "xdg-email", "gio"):
        found = shutil.which(name)
        assert found == str(tmp_path / "programs" / name)
        assert subprocess.run([found, "mailto:ann@example.org"], check=False).returncode == 1
