"""Let a hostile page try, in every way that pages have, to make the browser connect to what is not public.

Started by test_browser_ssrf.py in a closed network: `python -m tests.security.browser_attack_program MODE`. In the mode
`closed` the browser is as users have it; `closed_long` tries more URLs. The other modes leave out what closes a
way: they show that it would be found.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from perdure import PerdureError
from perdure._tools.browser import chromium
from perdure.hosts import LocalBrowser
from perdure.permissions import UrlTarget
from tests.security.closed_network import PUBLIC, ClosedNetwork
from tests.security.ssrf_urls import NAMES, build_families

URLS = [url for family in build_families().values() for url in family]
SOME_URLS = [url for place, url in enumerate(URLS) if place % 5 < 3]
"""Three fifths of them, of every family."""
LEAST_DENIALS = 301
"""Connections that the proxy has refused before the attack counts as over."""
REBINDING = [f"http://r{number}.rebind.example/" for number in range(10)]
DROPPED = {
    "closed": (),
    "closed_long": (),
    "no_proxy": ("--proxy-server", "--proxy-bypass-list", "--host-resolver-rules", "--force-webrtc", "--webrtc-ip"),
    "loopback_bypass": ("--proxy-bypass-list",),
    "open_webrtc": ("--force-webrtc", "--webrtc-ip"),
}
"""The flags that are left out in each mode."""
TEST_FLAGS = (
    "--allow-loopback-in-peer-connection",  # the one interface that there is
    "--unsafely-treat-insecure-origin-as-secure=http://attacker.example",  # so that the page has WebTransport
)
"""Flags that give the page more than it has elsewhere."""

PAGE = r"""<!doctype html><title>busy</title><link rel=dns-prefetch href="//prefetched.example">
<link rel=preconnect href="http://10.0.0.7/"><img src=/seen.png><body><script>
const urls = URLS, add = (tag, name, url) => {
  const element = document.createElement(tag); element[name] = url; document.body.append(element);
};
const wait = ms => new Promise(done => setTimeout(done, ms));
const ways = [
  url => add("iframe", "src", url), url => add("img", "src", url), url => add("script", "src", url),
  url => new WebSocket(url.replace(/^http/i, "ws")), url => new EventSource(url), url => navigator.sendBeacon(url, "x"),
  url => add("object", "data", url), url => { const link = document.createElement("link"); link.rel = "stylesheet";
    link.href = url; document.head.append(link); }, url => add("video", "src", url),
  url => { const link = document.createElement("link"); link.rel = "preconnect"; link.href = url;
    document.head.append(link); }, url => new WebTransport(url.replace(/^http:/i, "https:")),
];
const attempt = async (url, index) => {
  try { ways[index % ways.length](url); } catch (error) {}
  const options = {mode: "no-cors", signal: AbortSignal.timeout(LIMIT)};
  const redirect = "/redirect?to=" + encodeURIComponent(url), isLong = LONG;
  await Promise.allSettled([isLong ? fetch(url, options) : 0, isLong || index % 2 ? fetch(redirect, options) : 0]);
};
const peers = window.peers = [], gathered = [];
(async () => {
  for (const port of ["3478?transport=udp", "80?transport=tcp"]) for (const host of ["127.0.0.1", "10.0.0.1"]) try {
    const scheme = port.endsWith("udp") ? "stun:" + host + ":3478" : "turn:" + host + ":" + port;
    const peer = new RTCPeerConnection({iceServers: [{urls: scheme, username: "u", credential: "c"}]});
    peer.createDataChannel("x"); peers.push(peer);
    gathered.push(new Promise(done => peer.onicecandidateerror = peer.onicegatheringstatechange = event =>
      (event.type === "icecandidateerror" || peer.iceGatheringState === "complete") && done()));
    await peer.setLocalDescription(await peer.createOffer());
  } catch (error) {}
  new Worker(URL.createObjectURL(new Blob(["fetch('http://10.0.0.9/worker',{mode:'no-cors'}).catch(() => 0)"])));
  for (let begin = 0; begin < urls.length; begin += 50)
    await Promise.all(urls.slice(begin, begin + 50).map((url, index) => attempt(url, begin + index)));
  for (let round = 0; round < 4; round++) {
    const options = {mode: "no-cors", signal: AbortSignal.timeout(LIMIT)};
    await Promise.allSettled(REBINDING.map(url => fetch(url + round, options)));
  }
  await Promise.race([Promise.all(gathered), wait(20000)]);
  await wait(PAUSE);
  document.title = "done";
})();
</script>"""


def build_page(urls: list[str]) -> str:
    """Return the page with its attacks. Where connections succeed, some of them never end."""
    limit = "60000" if len(urls) >= len(SOME_URLS) else "4000"
    pause = "500" if len(urls) >= len(SOME_URLS) else "5000"
    return (
        PAGE.replace("LIMIT", limit)
        .replace("PAUSE", pause)
        .replace("LONG", "true" if len(urls) == len(URLS) else "false")
        .replace("URLS", json.dumps(urls).replace("<", "\\u003c"), 1)
        .replace("REBINDING", json.dumps(REBINDING))
    )


def respond(path: str, page: bytes) -> bytes:
    """Answer a request to any address."""
    if path.startswith("/redirect?to="):
        location = path.removeprefix("/redirect?to=")
        from urllib.parse import unquote

        target = unquote(location).encode("utf-8", "replace").replace(b"\r\n", b"%0d%0a")
        return b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % target
    body = page if path == "/attack" else b"hello"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def build_look_up():
    """Return a function that answers DNS queries; names below rebind.example change their address each time."""
    asked: dict[str, int] = {}

    def look_up(name: str) -> tuple[str, ...]:
        if name.endswith(".rebind.example"):
            asked[name] = asked.get(name, 0) + 1
            return (PUBLIC,) if asked[name] % 2 else ("127.0.0.1",)
        return NAMES.get(name, (PUBLIC,))

    return look_up


def measure_cpu_seconds() -> float:
    """Return the CPU time of all processes here: a parent outside gets no account of them."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, path.read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def is_connection_noted(network: ClosedNetwork, address: str) -> bool:
    """Return True if a connection to a private address, made here without the browser, succeeds and is counted."""
    reader, writer = await asyncio.open_connection(address, 80)
    writer.write(b"GET /control HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()
    return network.connections.pop(address, 0) == 1


async def main(mode: str) -> None:
    """Run the attacks, and print what was connected to."""
    dropped = DROPPED[mode]
    build_flags = chromium.build_flags
    chromium.build_flags = lambda *args, **options: [
        *TEST_FLAGS,
        *[each for each in build_flags(*args, **options) if not (dropped and each.startswith(dropped))],
    ]
    urls = {"closed": SOME_URLS, "closed_long": URLS}.get(mode, URLS[::24])
    page = build_page(urls).encode("utf-8", "replace")
    refused = 0
    async with (
        ClosedNetwork(lambda path: respond(path, page), build_look_up()) as network,
        LocalBrowser(step_seconds=30) as browser,
    ):
        is_private_noted = await is_connection_noted(network, "10.0.0.250")
        await browser.navigate("attack", UrlTarget.of("http://attacker.example/attack"))
        attacking = browser._sessions["attack"]._get_page()
        async with asyncio.timeout(200):
            while await attacking.title() != "done":  # noqa: ASYNC110 - of a page
                await asyncio.sleep(0.1)
        if not dropped:  # some elements load later than the requests that the page waits for
            async with asyncio.timeout(60):
                while browser.proxy.denial_count < LEAST_DENIALS:  # noqa: ASYNC110 - of a page
                    await asyncio.sleep(0.1)
        page_names = dict(network.names)
        cpu_seconds = measure_cpu_seconds()
        for url in urls if not dropped else ():
            try:
                await browser.navigate("visits", UrlTarget.of(url))
            except (ValueError, PerdureError):
                refused += 1
    result = {
        "urls": len(urls),
        "visits_refused": refused,
        "connections": network.connections,
        "datagrams": network.datagrams,
        "names": page_names,
        "paths": len(network.paths),
        "denials": browser.proxy.denial_count,
        "cpu_seconds": cpu_seconds,
        "seen": "/seen.png" in network.paths,
        "is_private_noted": is_private_noted,
    }
    sys.stdout.write(f"{json.dumps(result)}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
