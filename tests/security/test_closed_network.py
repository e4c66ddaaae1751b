"""Requests that a model steers, over real TLS and with real DNS answers, in a network where every address exists."""

import pytest

from tests.security.closed_network import PUBLIC, run_in_closed_network

pytestmark = [pytest.mark.needs("bubblewrap"), pytest.mark.packages("cryptography")]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_in_closed_network("tests.security.egress_attack_program", folder=tmp_path_factory.mktemp("network"))


def test_a_certificate_is_checked_before_anything_is_sent(found):
    results = found["results"]
    assert results["https://tls.example/"] == "hello"
    assert results["https://untrusted.example/"] == "InvalidResponse"
    assert results["https://wrong-name.example/"] == "InvalidResponse"
    answered = [each for each in results.values() if each == "hello"]
    assert found["paths"] == len(answered) + 2  # and two redirects, one of which was not followed


def test_a_redirect_from_https_to_http_is_refused(found):
    assert found["results"]["https://tls.example/to/http://tls.example/"] == "EgressDenied"


def test_a_name_that_changes_its_address_leads_nowhere_private(found):
    rebound = {
        url: result for url, result in found["results"].items() if ".rebind.example/" in url.partition("/to/")[0]
    }
    assert len(rebound) == 80
    assert {"hello", "EgressDenied"} == set(rebound.values())
    assert set(found["connections"]) == {PUBLIC}
    assert min(count for name, count in found["names"].items() if name.startswith("r1.")) >= 8
