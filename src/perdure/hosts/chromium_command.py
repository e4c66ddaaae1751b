"""Find Chromium, and build the flags that it is started with: headless, with an egress proxy for all connections."""

import os
import shutil
from collections.abc import Sequence
from typing import Final

from perdure.core.error import ConfigError

from .program_search import find_program_outside

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
