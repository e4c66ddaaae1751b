"""Which addresses belong to the internet, and which IPv4 addresses hide in others."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from perdure._io.egress.policy import is_metadata_address, is_public_address, list_embedded_ipv4, unmap_address
from tests.seeds import chance

PUBLIC = ["8.8.8.8", "93.184.216.34", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.255.255", "100.128.0.0"]
PUBLIC_V6 = ["2606:4700:4700::1111", "2a00:1450:4001:830::200e", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
NOT_PUBLIC = [
    *["0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1"],
    *["172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1"],
    *["203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16", "100.100.100.200", "192.0.0.192"],
    *["::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "3fff::1"],
    *["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::10.0.0.1"],
    *["64:ff9b::169.254.169.254", "64:ff9b:1::8.8.8.8", "2002:7f00:1::", "2002:808:808::", "2001::7f00:1", "100::1"],
    *["2001:470::5efe:127.0.0.1", "2001:470::200:5efe:8.8.8.8", "fec0::1", "5f00::1", "4000::1", "2001:20::1"],
]


@pytest.mark.parametrize("address", [*PUBLIC, *PUBLIC_V6])
def test_an_address_of_the_internet_is_public(address):
    assert is_public_address(ip_address(address))


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_of_a_machine_or_network_around_us_is_not_public(address):
    assert not is_public_address(ip_address(address))


def test_what_python_says_is_not_global_is_not_public_either():
    numbers = chance("public addresses")
    for _ in range(2_000):
        for address in (IPv4Address(numbers.getrandbits(32)), IPv6Address(numbers.getrandbits(128))):
            assert not is_public_address(address) or address.is_global, address


@pytest.mark.parametrize(
    ("address", "embedded"),
    [
        ("::ffff:127.0.0.1", ["127.0.0.1"]),
        ("::127.0.0.1", ["127.0.0.1"]),
        ("::ffff:0:10.1.2.3", ["10.1.2.3"]),
        ("64:ff9b::192.168.1.1", ["192.168.1.1"]),
        ("2002:a9fe:a9fe::1", ["169.254.169.254"]),
        ("2001:0:a9fe:a9fe:0:0:80ff:fffe", ["169.254.169.254", "127.0.0.1"]),
        ("2001:470::5efe:10.0.0.1", ["10.0.0.1"]),
        ("64:ff9b:1:a9fe:a9:fe00::", ["0.0.0.0", "169.254.169.254"]),
        ("2606:4700:4700::1111", []),
        ("127.0.0.1", []),
    ],
)
def test_the_ipv4_addresses_in_an_ipv6_address_are_found(address, embedded):
    assert [str(each) for each in list_embedded_ipv4(ip_address(address))] == embedded


@pytest.mark.parametrize(
    "address",
    [
        *["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"],
        *["fd20:ce::254", "::ffff:169.254.169.254", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe", "fe80::a9fe:a9fe"],
        *["2001:470::5efe:169.254.169.254", "::169.254.169.254", "64:ff9b:1:a9fe:a9:fe00::"],
    ],
)
def test_an_address_of_a_metadata_service_is_recognised_in_every_form(address):
    assert is_metadata_address(ip_address(address))


def test_other_private_addresses_are_not_those_of_metadata_services():
    assert not any(is_metadata_address(ip_address(each)) for each in ("127.0.0.1", "10.0.0.1", "::1", "fd00::1"))


def test_a_mapped_address_is_the_ipv4_address_in_it():
    assert unmap_address(ip_address("::ffff:10.0.0.1")) == ip_address("10.0.0.1")
    assert unmap_address(ip_address("10.0.0.1")) == ip_address("10.0.0.1")
    assert unmap_address(ip_address("fd00::1")) == ip_address("fd00::1")
