"""A Chromium process, headless, behind an egress proxy: find the program, start it, and end its process tree."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from perdure._core.values.error import ConfigError, ToolError
from perdure._io.egress.proxy import EgressProxy
from perdure._io.processes.private_folder import PrivateFolder
from perdure._io.processes.program import find_program_outside
from perdure._tools.sandbox.bubblewrap import find_system_program

from . import supervised

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright


PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""The names under which Chromium is looked for on `PATH`."""

_DISABLED_FEATURES: Final = (
    "AutofillServerCommunication",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "CertificateTransparencyComponentUpdater",
    "DestroyProfileOnBrowserClose",
    "DialMediaRouteProvider",
    "DnsOverHttpsUpgrade",
    "GlobalMediaControls",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "InterestFeedContentSuggestions",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "Translate",
)

_FLAGS: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--password-store=basic",
    "--use-mock-keychain",
    "--force-color-profile=srgb",
    "--disable-back-forward-cache",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-prompt-on-repost",
    "--disable-search-engine-choice-screen",
    "--disable-blink-features=AutomationControlled",
    # what the browser itself would send: updates, reports, suggestions
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-pings",
    "--safebrowsing-disable-auto-update",
    f"--disable-features={','.join(_DISABLED_FEATURES)}",
    # ways past an HTTP proxy: QUIC, WebRTC over UDP, name lookups of its own
    "--disable-quic",
    "--dns-prefetch-disable",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)


def find_chromium(executable: str | os.PathLike[str] | None = None) -> str:
    """Return the path of Chromium. Raises `ConfigError`, which says how to install it, if there is none.

    One of the project in the current folder counts only if it is named: a command could have written it.
    """
    if executable is not None:
        given = os.fspath(executable)
        found = shutil.which(given)
        if found is None:
            raise ConfigError(f"LocalBrowser(executable={given!r}): there is no such program")
        return found
    for name in PROGRAMS:
        if found := find_program_outside(name, os.curdir):
            return found
    raise ConfigError(
        f"LocalBrowser needs Chromium, and PATH has none of {', '.join(PROGRAMS)}: install it (Debian and Ubuntu: "
        "apt-get install chromium), or give its path as executable="
    )


def build_flags(profile: str, proxy_url: str, viewport: tuple[int, int], *, sandbox: bool) -> Sequence[str]:
    """Return the command line arguments of Chromium, so that it can be driven over the file descriptors 3 and 4.

    Args:
        profile: An empty folder for its profile.
        proxy_url: The proxy for all of its connections, those to loopback addresses included.
        viewport: The width and height of its window.
        sandbox: Confine the processes that read pages. Chromium cannot do it for root.
    """
    return [
        *_FLAGS,
        *([] if sandbox else ["--no-sandbox"]),
        f"--proxy-server={proxy_url}",
        "--proxy-bypass-list=<-loopback>",
        f"--user-data-dir={profile}",
        f"--window-size={viewport[0]},{viewport[1]}",
        "--remote-debugging-pipe",
        "about:blank",
    ]


START_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 5.0
_END_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_MOST_REASON_CHARACTERS: Final = 500
_PROGRAMS: Final = "programs"
_PASSED_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "TZ", "FONTCONFIG_FILE", "FONTCONFIG_PATH", "LD_LIBRARY_PATH")
"""The variables of this process that Chromium gets; no other, because they may be secret."""
_DESKTOP_PROGRAMS: Final = (
    "gio",
    "gvfs-open",
    "kde-open",
    "kde-open5",
    "kdialog",
    "kfmclient",
    "xdg-desktop-menu",
    "xdg-email",
    "xdg-icon-resource",
    "xdg-mime",
    "xdg-open",
    "xdg-screensaver",
    "xdg-settings",
)
"""Programs that Chromium would start for a page, for `mailto:` and other addresses that are not its own."""


def require_playwright() -> None:
    """Raise `ConfigError`, which says how to install it, if Playwright is not installed. Does not import it."""
    from importlib.util import find_spec

    if find_spec("playwright") is None:
        raise ConfigError("LocalBrowser needs playwright, which is not installed: pip install 'perdure[browser]'")
    if not hasattr(os, "mkfifo"):
        raise ConfigError("LocalBrowser needs named pipes, which this system does not have")


class ChromiumProcess:
    """A running Chromium with a folder for its profile; `close` ends all its processes and removes the folder.

    Also when this process is killed: then its supervisor ends its processes, and removes the folder.
    """

    def __init__(self, private: PrivateFolder, control: int, playwright: "Playwright", browser: "Browser") -> None:
        self.browser = browser
        """The browser, as Playwright drives it."""
        self.folder = private.path
        """The folder of its profile and downloads."""
        self._private = private
        self._control = control
        self._playwright = playwright

    @classmethod
    async def start(
        cls, executable: str, proxy: EgressProxy, *, viewport: tuple[int, int], sandbox: bool
    ) -> "ChromiumProcess":
        """Start Chromium. Raises `ToolError`, with what it has written, if it does not start."""
        from playwright.async_api import Error, async_playwright

        private = PrivateFolder("perdure-browser-")
        folder = private.path
        pipe = str(Path(folder, "control"))
        os.mkfifo(pipe, 0o600)
        await asyncio.to_thread(shadow_desktop_programs, folder)
        control = os.open(pipe, os.O_RDWR)  # for both ends: opening one waits for the other
        playwright: Playwright | None = None
        try:
            playwright = await async_playwright().start()
            command = [
                executable,
                *build_flags(str(Path(folder, "profile")), proxy.url, viewport, sandbox=sandbox),
            ]
            browser = await playwright.chromium.launch(
                executable_path=sys.executable,
                args=["-I", "-S", str(Path(supervised.__file__)), pipe, folder, *command],
                ignore_default_args=True,
                env=cast("dict[str, str | float | bool]", build_environment(folder)),
                proxy={"server": proxy.url, "username": proxy.username, "password": proxy.password},
                downloads_path=str(Path(folder, "downloads")),
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=START_SECONDS * 1_000,
            )
        except BaseException as error:
            await _end_processes(private, control, playwright)
            if isinstance(error, (Error, OSError)):
                reason = str(error)[-_MOST_REASON_CHARACTERS:]
                raise ToolError(f"the browser {executable!r} does not start: {reason}") from None
            raise
        return cls(private, control, playwright, browser)

    async def close(self) -> None:
        """Close the browser, and wait until all of its processes have ended. May be called twice."""
        control, self._control = self._control, -1
        if control < 0:
            return
        await _wait_briefly(self.browser.close())
        await _end_processes(self._private, control, self._playwright)


async def _end_processes(private: PrivateFolder, control: int, playwright: "Playwright | None") -> None:
    """End all processes below the supervisor, then the driver, and remove the folder."""
    with contextlib.suppress(OSError):
        os.write(control, b"x")
    os.close(control)
    if playwright is not None:
        await _wait_briefly(playwright.stop())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while await asyncio.to_thread(os.path.exists, Path(private.path, "profile")):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(_LOOK_SECONDS)  # the launcher removes it, once the last process has ended
    await asyncio.to_thread(private.remove)


async def _wait_briefly(closing: Awaitable[Any]) -> None:
    """Wait for a part that is being closed; what does not react, or fails, is ended in another way."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await closing


def shadow_desktop_programs(folder: str) -> None:
    """Make programs that do nothing in the folder of a browser, to be found instead of those of the desktop."""
    place = Path(folder, _PROGRAMS)
    place.mkdir(mode=0o700)
    nothing = find_system_program("false") or "/bin/false"
    for name in _DESKTOP_PROGRAMS:
        place.joinpath(name).symlink_to(nothing)


def build_environment(folder: str) -> dict[str, str]:
    """Return the environment of Chromium: no secrets of this process, a new home folder, no programs of the desktop."""
    passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    passed["PATH"] = os.pathsep.join([str(Path(folder, _PROGRAMS)), passed.get("PATH", os.defpath)])
    return {**passed, "HOME": folder, "TMPDIR": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
