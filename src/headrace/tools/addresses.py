"""Which addresses of the network a model may have fetched for it, checked where a connection is made.

Theory of operation. A name can resolve to anything, and to something else a moment later, so names are not judged at
all: `Gate` makes the sockets of an aiohttp connector and refuses to make one for an address that is not public. What is
checked is therefore what is connected to, also for addresses in the URL, for every redirect, and whatever the
resolver says. Refused are loopback, private, link-local, shared (carrier-grade NAT), multicast, reserved and
documentation addresses, the cloud's metadata services, and IPv6 addresses that carry one of those within (mapped,
6to4, Teredo, NAT64).
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from aiohttp.connector import AddrInfoType

# Public by its number, but answered by the machine's own cloud: Azure's and Oracle's metadata services.
_OWN_CLOUD: Final = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
_NAT64: Final = ip_network("64:ff9b::/96")
_NAT64_LOCAL: Final = ip_network("64:ff9b:1::/48")


class NotPublic(OSError):
    """The address is not one of the public network."""


def public(text: str) -> bool:
    """Whether an address, as a socket names it, is one of the public network."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address in _NAT64_LOCAL:
            return False
        if any(not _public(inner) for inner in _within(address)):
            return False
        if address.ipv4_mapped is not None or address in _NAT64:
            return True  # what they stand for is
    return _public(address)


def _public(address: IPv4Address | IPv6Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address in network for network in _OWN_CLOUD)


def _within(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address stands for."""
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [found for found in inner if found is not None]


class Gate:
    """Makes the sockets of one fetch."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self.refused: str = ""
        """The last address that was refused."""

    def __call__(self, info: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, where = info
        address = str(where[0])
        if not self._private and not public(address):
            self.refused = address
            raise NotPublic(f"{address} is not a public address")
        return socket.socket(family, kind, protocol)
