"""Names become addresses that were checked, and no socket goes anywhere else."""

import asyncio
import socket

import pytest

from perdure._io.egress.resolver import CheckedResolver, check_socket_address, look_up_host
from perdure.hosts import EgressDenied, EgressPolicy

PUBLIC = "93.184.216.34"


def answering(*addresses: str):
    async def look_up(_host: str, _port: int) -> list[str]:
        return list(addresses)

    return look_up


async def test_the_addresses_of_a_public_host_are_used_as_they_are():
    resolver = CheckedResolver(EgressPolicy(), answering(PUBLIC, "2606:4700:4700::1111", PUBLIC))
    found = await resolver.resolve("example.org", 443)
    await resolver.close()
    assert [(each["host"], each["family"], each["port"]) for each in found] == [
        (PUBLIC, socket.AF_INET, 443),
        ("2606:4700:4700::1111", socket.AF_INET6, 443),
    ]
    assert {each["hostname"] for each in found} == {"example.org"}


@pytest.mark.parametrize(
    "private", ["127.0.0.1", "10.0.0.1", "::1", "fe80::1%lo", "::ffff:127.0.0.1", "169.254.169.254"]
)
async def test_one_private_address_among_public_ones_is_enough_to_deny_a_host(private):
    resolver = CheckedResolver(EgressPolicy(), answering(PUBLIC, private))
    with pytest.raises(EgressDenied, match=r"'example\.org' has"):
        await resolver.resolve("example.org", 443)


async def test_a_host_without_addresses_cannot_be_reached():
    with pytest.raises(OSError, match="no address"):
        await CheckedResolver(EgressPolicy(), answering()).resolve("example.org", 443)


def test_a_socket_is_checked_by_the_address_that_it_connects_to():
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
    with pytest.raises(EgressDenied, match="not public"):
        check_socket_address(EgressPolicy(), address)
    check_socket_address(EgressPolicy(private_networks=["127.0.0.0/8"]), address)


async def test_the_operating_system_is_asked_for_a_name(monkeypatch):
    asked = []

    async def getaddrinfo(host, port, **options):
        asked.append((host, port, options["type"]))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await look_up_host("example.org", 443) == [PUBLIC]
    assert asked == [("example.org", 443, socket.SOCK_STREAM)]


async def test_a_result_is_for_this_host_and_is_not_looked_up_again() -> None:
    found = await CheckedResolver(EgressPolicy(), answering(PUBLIC)).resolve("example.org")
    assert found == [
        {
            "hostname": "example.org",
            "host": PUBLIC,
            "port": 0,
            "family": socket.AF_INET,
            "proto": 0,
            "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        }
    ]


def test_a_socket_that_is_denied_is_told_by_its_address() -> None:
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))
    with pytest.raises(EgressDenied, match=r"127\.0\.0\.1") as caught:
        check_socket_address(EgressPolicy(), address)
    assert "80" not in str(caught.value)
