"""Addresses as targets: their normal form, and what patterns match. Hostile spellings are in tests/security."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ConfigError
from perdure._core.permission.targets.url import UrlPattern, build_host_pattern, normalize_host
from perdure.permissions import UrlTarget


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://a.example", "https://a.example/"),
        ("HTTP://A.Example:80/x", "http://a.example/x"),
        ("http://a.example:8080/x?", "http://a.example:8080/x"),
        ("https://a.example/a/./b/../c", "https://a.example/a/c"),
        ("https://a.example/a/.", "https://a.example/a/"),
        ("https://a.example/../..", "https://a.example/"),
        ("https://a.example/%7e%3f", "https://a.example/~%3F"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://a_b.example./", "https://a_b.example/"),
        ("http://1.2.3/", "http://1.2.0.3/"),
        ("http://0x/", "http://0.0.0.0/"),
        ("http://[::1]:99/", "http://[::1]:99/"),
        ("gopher://a.example/", "gopher://a.example/"),
    ],
)
def test_an_address_has_one_form(given, url):
    assert UrlTarget.of(given).url == url
    assert UrlTarget.of(url).url == url
    assert str(UrlTarget.of(given)) == url


@pytest.mark.parametrize(
    "given",
    [
        "http://1.2.3.4.5/",
        "http://1.2.3.x4.5/",
        "http://256.1.1.1/",
        "http://1.2.3.256/",
        "http://08.1.1.1/",
        "http://4294967296/",
        "http://[::1%eth0]/",
        "http://[::zz]/",
        "http://a" + "b" * 70 + "é.example/",
        "http://a b/",
        "http://user@a.example/",
        "http://a%2e.example/",
        "http:///x",
        "a.example",
        5,
    ],
)
def test_what_is_no_address_has_no_target(given):
    with pytest.raises(ValueError):
        UrlTarget.of(given)


@pytest.mark.parametrize("port", [1, 2, 65534, 65535])
def test_a_port_is_a_number_within_its_bounds(port):
    assert UrlTarget.of(f"http://a.example:{port}/").port == port


@pytest.mark.parametrize("port", ["0", "00", "65536", "-1", "+1", "8x", "٣"])
def test_another_number_is_no_port(port):
    with pytest.raises(ValueError, match="is not a port"):
        UrlTarget.of(f"http://a.example:{port}/")


def test_a_target_comes_from_an_argument():
    assert UrlTarget.of_argument("page")({"page": "https://a.example/x"}).path == "/x"


@given(st.text("ab/.%2eEfF?#:@\\é", max_size=12))
def test_the_form_of_a_form_is_the_same(rest):
    try:
        target = UrlTarget.of(f"https://a.example/{rest}")
    except ValueError:
        return
    assert UrlTarget.of(target.url) == target
    assert not any(step in {".", ".."} for step in target.path.split("/"))


@pytest.mark.parametrize(
    ("pattern", "url", "allowed", "denied"),
    [
        ("https://a.example", "https://a.example/x/y", True, True),
        ("https://a.example/", "https://a.example/", True, True),
        ("https://a.example/", "https://a.example/x", False, True),
        ("https://a.example/x/*", "https://a.example/x/y", True, True),
        ("https://a.example/x/**", "https://a.example/x", False, True),
        ("https://a.example/X", "https://a.example/x", False, True),
        ("https://a.example:444/**", "https://a.example:444/x", True, True),
        ("https://a.example:444/**", "https://a.example/x", False, False),
        ("https://*.a.example", "https://b.a.example/x", True, True),
        ("https://*.a.example", "https://a.example/x", False, False),
        ("https://*", "https://any.example/x", True, True),
        ("a.example", "https://a.example/x", True, True),
        ("a.example", "http://a.example/x", False, True),
        ("a.example", "https://b.a.example:99/x", False, True),
        ("*://a.example", "ftp://a.example/x", False, True),
        ("http://a.example", "https://a.example/x", False, False),
        ("ftp://a.example", "ftp://a.example/x", True, True),
        ("gopher://a.example", "gopher://a.example/x", True, True),
        ("b.example", "https://a.example/x", False, False),
    ],
)
def test_a_pattern_is_read_narrowly_to_allow_and_widely_to_deny(pattern, url, allowed, denied):
    assert UrlPattern(pattern).allows(UrlTarget.of(url)) is allowed
    assert UrlPattern(pattern).may_match(UrlTarget.of(url)) is denied


def test_a_text_may_be_an_address():
    assert UrlPattern("a.example").may_match_text(" https://a.example/x ")
    assert not UrlPattern("a.example").may_match_text("a.example is a host")


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "https://",
        "https://user@a.example",
        "https://a.example/x?y",
        "https://a.example/../x",
        "https://docs*.example",
        "https://a.example\\x",
        "a.example:x",
        "https://a.example/%",
    ],
)
def test_a_pattern_that_is_no_address_is_refused(pattern):
    with pytest.raises(ConfigError, match="give an address such as"):
        UrlPattern(pattern)


@pytest.mark.parametrize(
    ("narrow", "wide", "within"),
    [
        ("https://a.example/x", "https://a.example/x", True),
        ("https://a.example/x/y", "https://a.example/x/**", True),
        ("https://a.example/x/*", "https://a.example/x/**", True),
        ("https://a.example/x/*", "https://a.example", True),
        ("https://a.example/x", "https://a.example/*", True),
        ("https://a.example/*", "https://a.example/x", False),
        ("https://a.example/*/x", "https://a.example/*/**", False),
        ("https://a.example", "a.example", True),
        ("https://b.a.example", "https://*.a.example", True),
        ("https://*.a.example", "https://*.a.example", True),
        ("https://*.b.a.example", "https://*.a.example", False),
        ("https://a.example", "http://a.example", False),
        ("https://a.example:99", "https://a.example:98", False),
    ],
)
def test_a_pattern_is_within_another_only_if_that_is_certain(narrow, wide, within):
    assert UrlPattern(narrow).is_within(UrlPattern(wide)) is within


def test_the_host_of_an_address_is_offered():
    pattern = build_host_pattern(UrlTarget.of("https://a.example:99/x"))
    assert (pattern.text, str(pattern)) == ("https://a.example:99/**", "url('https://a.example:99/**')")


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("a_b-c.example", "a_b-c.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
    ],
)
def test_a_host_has_one_normal_form(host, normal):
    assert normalize_host(host) == normal


@pytest.mark.parametrize("host", ["", ".", "a..b", "a%41", "a b", "a/b", "a@b", "a,b", "ü..b", "a*b", "a.b.."])
def test_what_is_no_host_is_refused(host):
    with pytest.raises(ValueError, match="is not a"):
        normalize_host(host)


@pytest.mark.parametrize(
    ("host", "normal"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("16909060", "1.2.3.4"),
        ("0x01020304", "1.2.3.4"),
        ("1.131844", "1.2.3.4"),
        ("1.2.772", "1.2.3.4"),
        ("0177.0X1", "127.0.0.1"),
        ("010.0.0.010", "8.0.0.8"),
        ("255.255.255.255", "255.255.255.255"),
        ("4294967295", "255.255.255.255"),
        ("255.16777215", "255.255.255.255"),
        ("255.255.65535", "255.255.255.255"),
    ],
)
def test_a_number_as_a_host_is_the_address_that_it_means(host, normal):
    assert normalize_host(host) == normal


@pytest.mark.parametrize(
    "host",
    ["1.2.3.4.0", "0.0.0.0.0", "a.1", "256.0.0.0", "1.16777216", "1.2.65536", "0.256.1", "09", "0xg.0", "[::1", "::1]"],
)
def test_a_host_that_looks_like_an_address_and_is_none_is_refused(host):
    with pytest.raises(ValueError) as caught:
        normalize_host(host)
    assert str(caught.value) == f"{host!r} is not a host"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http:a.example/", "is not an absolute address such as 'https://example.org/page'"),
        ("http:/a.example/", "is not an absolute address such as 'https://example.org/page'"),
        ("//a.example/", "is not an absolute address such as 'https://example.org/page'"),
        ("http", "is not an absolute address such as 'https://example.org/page'"),
        ("h1://a.example/", "is not an absolute address such as 'https://example.org/page'"),
        ("é://a.example/", "is not an absolute address such as 'https://example.org/page'"),
        ("://a.example/", "is not an absolute address such as 'https://example.org/page'"),
        ("http://a:b@a.example/", "has a user name or password in front of the host"),
        ("http://a.example\\b", "has characters that an address cannot have"),
        ("http://a.example/ b", "has characters that an address cannot have"),
        ("http://a.example/\x00", "has characters that an address cannot have"),
    ],
)
def test_the_refusal_of_an_address_says_why(url, told):
    with pytest.raises(ValueError) as caught:
        UrlTarget.of(url)
    assert str(caught.value) == f"{url!r} {told}"
