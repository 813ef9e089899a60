"""Which addresses are public: the same on every Python."""

import pytest

from callboard.codecs.oauth.addresses import Reach, check_address
from callboard.errors import UnsafeUrl


@pytest.mark.finding("security-24")
@pytest.mark.parametrize(
    "address",
    [
        *("192.0.0.192", "192.0.0.8", "192.0.0.255", "192.88.99.1", "10.0.0.1", "169.254.169.254", "100.64.0.1"),
        *("3fff::1", "3fff:fff::1", "64:ff9b:1::1", "100::1", "100:0:0:1::1", "2001:2::1", "2001:db8::1", "5f00::1"),
        *("::ffff:8.8.8.8", "64:ff9b::192.0.0.192", "2002:c000:00c0::1", "fe80::1", "fc00::1", "fec0::1", "::1", "::"),
    ],
)
def test_an_address_for_special_purposes_is_not_public(address: str) -> None:
    with pytest.raises(UnsafeUrl, match="not a public address"):
        check_address(address, "evil.example", Reach())


@pytest.mark.parametrize("address", ["8.8.8.8", "192.0.1.1", "192.88.98.1", "2606:4700::1", "64:ff9b::8.8.8.8"])
def test_others_are(address: str) -> None:
    check_address(address, "good.example", Reach())
