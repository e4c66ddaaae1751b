"""Which URLs, addresses and redirects a policy allows."""

import pytest

from perdure import ConfigError
from perdure.hosts import EgressDenied, EgressPolicy
from perdure.permissions import UrlTarget

ANYWHERE = EgressPolicy()


def is_allowed(policy: EgressPolicy, url: str) -> bool:
    try:
        policy.check_url(url)
    except EgressDenied:
        return False
    return True


# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["https://example.org", "http://example.org/a?b=c", "https://EXAMPLE.org:443/", "http://93.184.216.34/"]
)
def test_a_public_host_is_allowed_by_default(url):
    assert ANYWHERE.check_url(url).host in {"example.org", "93.184.216.34"}


def test_the_url_to_fetch_is_in_normal_form():
    assert ANYWHERE.check_url("https://Example.ORG.:443/a/../b#fragment").url == "https://example.org/b"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.org/x", "gopher://example.org/", "ws://example.org"]
)
def test_only_http_and_https_are_fetched(url):
    with pytest.raises(EgressDenied, match=r"not fetched|not a host"):
        ANYWHERE.check_url(url)


@pytest.mark.parametrize(
    "url", ["", "example.org", "//example.org", "https:example.org", "https://a b", "https://u@b.org"]
)
def test_what_is_no_plain_address_is_denied(url):
    with pytest.raises(EgressDenied):
        ANYWHERE.check_url(url)


def test_a_very_long_url_is_denied():
    with pytest.raises(EgressDenied, match="characters"):
        ANYWHERE.check_url(f"https://example.org/{'a' * 10_000}")


@pytest.mark.parametrize(
    ("ports", "url", "allowed"),
    [
        ((80, 443), "https://example.org:8443", False),
        ((80, 443), "http://example.org:22", False),
        ((8443,), "https://example.org:8443", True),
        ((8443,), "https://example.org", False),
        (None, "http://example.org:6379", True),
        ((), "https://example.org", False),
    ],
)
def test_only_listed_ports_are_used(ports, url, allowed):
    assert is_allowed(EgressPolicy(ports=ports), url) == allowed


@pytest.mark.parametrize(
    ("pattern", "host", "allowed"),
    [
        ("example.org", "example.org", True),
        ("Example.ORG.", "example.org", True),
        ("example.org", "www.example.org", False),
        ("*.example.org", "www.example.org", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "evilexample.org", False),
        ("example.org", "example.org.evil.com", False),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("93.184.216.34", "93.184.216.34", True),
        ("93.184.216.34", "0x5db8d822", True),
        ("2606:4700:4700::1111", "[2606:4700:4700:0:0:0:0:1111]", True),
    ],
)
def test_a_list_of_hosts_allows_only_those(pattern, host, allowed):
    assert is_allowed(EgressPolicy(allow_hosts=[pattern]), f"https://{host}/") == allowed


@pytest.mark.parametrize(
    ("pattern", "host", "denied"),
    [
        ("example.org", "example.org", True),
        ("example.org", "www.example.org", True),
        ("example.org", "example.org.", True),
        ("*.example.org", "www.example.org", True),
        ("*.example.org", "example.org", False),
        ("example.org", "notexample.org", False),
    ],
)
def test_a_denied_host_is_denied_with_the_names_below_it(pattern, host, denied):
    assert is_allowed(EgressPolicy(deny_hosts=[pattern]), f"https://{host}/") != denied


def test_a_denial_outweighs_the_list_of_allowed_hosts():
    policy = EgressPolicy(allow_hosts=["*.example.org"], deny_hosts=["mail.example.org"])
    assert is_allowed(policy, "https://www.example.org")
    assert not is_allowed(policy, "https://mail.example.org")


def test_an_allowed_host_may_not_have_a_private_address():
    with pytest.raises(EgressDenied, match="not public"):
        EgressPolicy(allow_hosts=["127.0.0.1"]).check_url("http://127.0.0.1")


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "printer.local", "metadata.google.internal", "intranet"])
def test_a_name_of_a_private_network_is_denied_before_it_is_looked_up(host):
    with pytest.raises(EgressDenied, match="private network"):
        ANYWHERE.check_url(f"http://{host}/")
    assert is_allowed(EgressPolicy(private_networks=["10.0.0.0/8"]), f"http://{host}/")


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_a_private_network_can_be_allowed():
    policy = EgressPolicy(private_networks=["10.1.0.0/16", "127.0.0.1", "fd00:1::/64"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "127.0.0.1", "fd00:1::5", "8.8.8.8"):
        policy.check_address(address, "x")
    for address in ("10.2.0.1", "127.0.0.2", "::1", "fd00:2::5", "64:ff9b::10.1.2.3", "2002:a01:203::"):
        with pytest.raises(EgressDenied, match="not public"):
            policy.check_address(address, "x")


def test_metadata_addresses_are_denied_even_if_every_network_is_allowed():
    policy = EgressPolicy(private_networks=["0.0.0.0/0", "::/0"])
    for address in (
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "64:ff9b::a9fe:a9fe",
        "168.63.129.16",
    ):
        with pytest.raises(EgressDenied, match="never allowed"):
            policy.check_address(address, "x")


def test_a_denial_does_not_tell_the_address_that_a_name_resolves_to():
    with pytest.raises(EgressDenied) as caught:
        ANYWHERE.check_address("10.20.30.40", "intranet.example.org")
    assert "10.20" not in str(caught.value)


@pytest.mark.parametrize("address", ["", "x", "1.2.3", "127.1"])
def test_what_is_no_address_is_denied(address):
    with pytest.raises(EgressDenied, match="no valid address"):
        ANYWHERE.check_address(address, "example.org")


# -- redirects ---------------------------------------------------------------------------------------------------------

PAGE = UrlTarget.of("https://example.org/a/b?c=d")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", "https://example.org/x"),
        ("x", "https://example.org/a/x"),
        ("?e", "https://example.org/a/b?e"),
        ("//other.org/x", "https://other.org/x"),
        ("https://other.org", "https://other.org/"),
        (" /with space ", "https://example.org/with%20space"),
    ],
)
def test_a_redirect_leads_where_a_browser_would_go(location, url):
    assert ANYWHERE.check_redirect(PAGE, location).url == url


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:text/html,x",
        "http://169.254.169.254/latest",
        "//127.0.0.1",
        "https://u:p@other.org",
        "https://other.org\\@127.0.0.1",
        "https://[::1]/",
        "https://[::1",
        "https://other.org:25/",
        "http://example.org/a/b",
    ],
)
def test_a_redirect_is_checked_like_the_first_url(location):
    with pytest.raises(EgressDenied, match="redirects"):
        ANYWHERE.check_redirect(PAGE, location)


def test_a_redirect_from_https_to_http_can_be_allowed():
    policy = EgressPolicy(allow_downgrade=True)
    assert policy.check_redirect(PAGE, "http://other.org/").url == "http://other.org/"


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"allow_hosts": "example.org"}, "give a list"),
        ({"allow_hosts": ["https://example.org"]}, "host names"),
        ({"allow_hosts": [5]}, "host names"),
        ({"deny_hosts": ["*"]}, "host names"),
        ({"ports": 443}, "give a list"),
        ({"ports": ["443"]}, "whole number"),
        ({"private_networks": ["10.0.0.1/8"]}, "networks such as"),
        ({"private_networks": [10]}, "networks such as"),
        ({"max_redirects": -1}, "whole number"),
        ({"allow_downgrade": 1}, "True or False"),
        ({"proxy": "proxy:3128"}, "URL of an HTTP proxy"),
        ({"allowed_hosts": []}, "allow_hosts"),
    ],
)
def test_options_that_cannot_work_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        EgressPolicy(**options)


@pytest.mark.parametrize(("ports", "allowed"), [([443, 8443], "443, 8443"), ([], "none")])
def test_a_port_that_is_not_allowed_is_told_with_those_that_are(ports: list[int], allowed: str) -> None:
    with pytest.raises(EgressDenied) as caught:
        EgressPolicy(ports=ports).check_url("http://example.org/")
    assert str(caught.value) == f"port 80 of 'example.org' is not allowed; allowed: {allowed}"
