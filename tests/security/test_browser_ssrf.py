"""A hostile page does not make the browser connect to what is not public, whatever it tries.

The browser runs in a network of its own in which every address exists and counts its visitors, so a connection that is
made is found. The same page in a browser without the proxy, or without one of the flags, reaches private addresses.
"""

import os

import pytest

from tests.security.closed_network import PUBLIC, run_in_closed_network

pytestmark = [pytest.mark.needs("chromium", "bubblewrap"), pytest.mark.packages("playwright")]

READ_AS_PUBLIC = {"8.0.0.1", "172.14.0.1"}
"""What 010.000.000.001 and 172.016.000.001 mean: a leading zero makes a number octal, in browsers as here."""
PROGRAM = "tests.security.browser_attack_program"


@pytest.mark.faults
@pytest.mark.timeout(330)
def test_no_page_reaches_what_is_not_public_through_the_browser(tmp_path):
    mode = "closed_long" if os.environ.get("PERDURE_SEARCH") == "long" else "closed"
    found = run_in_closed_network(PROGRAM, mode, folder=tmp_path)
    assert found["urls"] >= 300
    assert found["seen"]
    assert found["is_private_noted"]
    assert set(found["connections"]) <= {PUBLIC, *READ_AS_PUBLIC}
    assert found["paths"] > found["urls"] / 3  # half of them were targets of redirects; with "long", all of them
    assert found["datagrams"] == {}
    assert found["denials"] > 300
    assert found["visits_refused"] >= found["urls"] - 20  # the others are public after all, or show the refusal
    rebound = {name: count for name, count in found["names"].items() if name.endswith(".rebind.example")}
    assert len(rebound) == 10
    assert max(rebound.values()) > 1  # so there were private answers too
    assert "prefetched.example" not in found["names"]


@pytest.mark.faults
@pytest.mark.timeout(330)
@pytest.mark.parametrize(
    ("mode", "address"),
    [
        ("no_proxy", "10.0.0.1"),
        ("loopback_bypass", "127.0.0.1"),
        ("open_webrtc", ""),
    ],
)
def test_the_same_page_gets_through_without_the_proxy_or_a_flag(tmp_path, mode, address):
    if os.environ.get("PERDURE_SEARCH") != "long":
        pytest.skip("one more browser: with PERDURE_SEARCH=long")
    found = run_in_closed_network(PROGRAM, mode, folder=tmp_path)
    assert found["seen"]
    if address:
        assert found["connections"].get(address, 0) > 0
    if mode == "open_webrtc":
        assert found["datagrams"].get("3478", 0) > 0
