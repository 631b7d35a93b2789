"""IP addresses and ranges of addresses.

Source: `apiserver/pkg/cel/library/ip.go` and `cidr.go`, v1.37; Go's `net/netip` for the texts of errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any, Final

from berth_plugins.cel.declarations import CIDR, IP
from berth_plugins.cel.errors import EvalError
from berth_plugins.cel.functions.formatting import quoted
from berth_plugins.cel.values import Opaque, Value

_Address = IPv4Address | IPv6Address
_BITS: Final = re.compile(r"[0-9]|[1-9][0-9]+", re.ASCII)
_GROUP: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)


class IpValue(Opaque):
    """An address."""

    __slots__ = ("address",)
    cel_type = IP

    def __init__(self, address: _Address) -> None:
        self.address = address

    def __str__(self) -> str:
        return str(self.address)

    @property
    def size(self) -> int:
        """The length in bytes."""
        return self.address.max_prefixlen // 8

    def equals(self, other: Value) -> bool:
        """Compare with another address. Raises EvalError for another value."""
        if not isinstance(other, IpValue):
            raise EvalError("no such overload")
        return self.address == other.address


class CidrValue(Opaque):
    """A range: an address in it, and the length of the prefix in bits."""

    __slots__ = ("address", "bits")
    cel_type = CIDR

    def __init__(self, address: _Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    @property
    def size(self) -> int:
        """The length of the prefix in bytes, rounded up."""
        return -(-self.bits // 8)

    def equals(self, other: Value) -> bool:
        """Compare with another range. Raises EvalError for another value."""
        if not isinstance(other, CidrValue):
            raise EvalError("no such overload")
        return (self.address, self.bits) == (other.address, other.bits)

    def covers(self, address: _Address) -> bool:
        """Return True if the address is in the range."""
        rest = address.max_prefixlen - self.bits
        return address.version == self.address.version and int(address) >> rest == int(self.address) >> rest

    def masked(self) -> CidrValue:
        """Return the range with its first address."""
        return CidrValue(ip_network((self.address, self.bits), strict=False).network_address, self.bits)


class _AddressError(ValueError):
    """A text is no address. `reason`: as Go's `netip.ParseAddr` tells it."""

    def __init__(self, text: str, reason: str, at: str = "") -> None:
        place = f" (at {quoted(at)})" if at else ""
        super().__init__(f"ParseAddr({quoted(text)}): {reason}{place}")


def _address(text: str) -> tuple[_Address, str]:
    """Return the address and its zone. Raises _AddressError."""
    for sign in text:
        if sign == ".":
            return IPv4Address(_fields(text, text)), ""
        if sign == ":":
            return _address6(text)
        if sign == "%":
            raise _AddressError(text, "missing IPv6 address")
    raise _AddressError(text, "unable to parse IP")


def _fields(text: str, part: str) -> bytes:
    """Return the four bytes of `1.2.3.4`."""
    found: list[int] = []
    value = digits = 0
    for at, sign in enumerate(part):
        if "0" <= sign <= "9":
            if digits == 1 and value == 0:
                raise _AddressError(text, "IPv4 field has octet with leading zero")
            value = value * 10 + int(sign)
            digits += 1
            if value > 255:
                raise _AddressError(text, "IPv4 field has value >255")
        elif sign == ".":
            if at in (0, len(part) - 1) or part[at - 1] == ".":
                raise _AddressError(text, "IPv4 field must have at least one digit", part[at:])
            if len(found) == 3:
                raise _AddressError(text, "IPv4 address too long")
            found.append(value)
            value = digits = 0
        else:
            raise _AddressError(text, "unexpected character", part[at:])
    if len(found) < 3:
        raise _AddressError(text, "IPv4 address too short")
    return bytes((*found, value))


def _address6(text: str) -> tuple[IPv6Address, str]:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _AddressError(text, "zone must be a non-empty string")
    found = bytearray()
    gap = -1
    if rest.startswith("::"):
        gap, rest = 0, rest[2:]
        if not rest:
            return IPv6Address(0), zone
    while len(found) < 16:
        match = _GROUP.match(rest)
        group = "" if match is None else match[0]
        if len(group) > 4:
            raise _AddressError(text, "each group must have 4 or less digits", rest)
        if not group:
            raise _AddressError(text, "each colon-separated field must have at least one digit", rest)
        after = rest[len(group) :]
        if after.startswith("."):
            if gap < 0 and len(found) != 12:
                reason = "embedded IPv4 address must replace the final 2 fields of the address"
                raise _AddressError(text, reason, rest)
            if len(found) + 4 > 16:
                reason = "too many hex fields to fit an embedded IPv4 at the end of the address"
                raise _AddressError(text, reason, rest)
            found += _fields(text, rest)
            rest = ""
            break
        found += int(group, 16).to_bytes(2, "big")
        rest = after
        if not rest:
            break
        if rest[0] != ":":
            raise _AddressError(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _AddressError(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if gap >= 0:
                raise _AddressError(text, "multiple :: in address", rest)
            gap, rest = len(found), rest[1:]
            if not rest:
                break
    if rest:
        raise _AddressError(text, "trailing garbage after address", rest)
    if len(found) < 16:
        if gap < 0:
            raise _AddressError(text, "address string too short")
        found[gap:gap] = bytes(16 - len(found))
    elif gap >= 0:
        raise _AddressError(text, "the :: must expand to at least one field of zeros")
    return IPv6Address(bytes(found)), zone


def _ip(text: str) -> IpValue:
    try:
        address, zone = _address(text)
    except _AddressError as err:
        reason = f"IP Address {quoted(text)} parse error during conversion from string: {err}"
        raise EvalError(reason) from err
    if zone:
        raise EvalError(f"IP address {quoted(text)} with zone value is not allowed")
    _refuse_mapped(address, text)
    return IpValue(address)


def _refuse_mapped(address: _Address, text: str) -> None:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise EvalError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")


def _cidr(text: str) -> CidrValue:
    failed = "network address parse error during conversion from string"
    head, slash, bits = text.rpartition("/")
    reason = ""
    address: _Address = IPv4Address(0)
    try:
        address, zone = _address(head)
    except _AddressError as err:
        zone, reason = "", str(err)
    if not slash:
        reason = "no '/'"
    elif not reason and zone:
        reason = "IPv6 zones cannot be present in a prefix"
    elif not reason and _BITS.fullmatch(bits) is None:
        reason = f"bad bits after slash: {quoted(bits)}"
    elif not reason and (len(bits) > 3 or int(bits) > address.max_prefixlen):
        reason = "prefix length out of range"
    if reason:
        raise EvalError(f"{failed}: {failed}: netip.ParsePrefix({quoted(text)}): {reason}")
    try:
        _refuse_mapped(address, text)
    except EvalError as err:
        raise EvalError(f"{failed}: {err}") from err
    return CidrValue(address, int(bits))


def _reads(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_readable(text: str) -> bool:
        try:
            read(text)
        except EvalError:
            return False
        return True

    return is_readable


def _contains_ip(one: CidrValue, text: str) -> bool:
    try:
        return one.covers(_ip(text).address)
    except EvalError as err:
        raise EvalError("no such overload") from err


def _contains_cidr_text(one: CidrValue, text: str) -> bool:
    return _contains_cidr(one, _cidr(text))


def _contains_cidr(one: CidrValue, other: CidrValue) -> bool:
    return one.bits <= other.bits and one.covers(other.address)


def _is_link_local_multicast(one: IpValue) -> bool:
    raw = one.address.packed
    if isinstance(one.address, IPv4Address):
        return raw[:3] == b"\xe0\x00\x00"
    return raw[0] == 0xFF and raw[1] & 0x0F == 0x02


def _is_link_local_unicast(one: IpValue) -> bool:
    raw = one.address.packed
    if isinstance(one.address, IPv4Address):
        return raw[:2] == b"\xa9\xfe"
    return raw[0] == 0xFE and raw[1] & 0xC0 == 0x80


def _is_global_unicast(one: IpValue) -> bool:
    address = one.address
    return not (
        address == IPv4Address("255.255.255.255")
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or _is_link_local_unicast(one)
    )


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {
    "string_to_ip": _ip,
    "ip_to_string": str,
    "ip_family": lambda one: one.address.version,
    "ip_is_canonical": lambda text: str(_ip(text)) == text,
    "is_ip": _reads(_ip),
    "ip_is_unspecified": lambda one: one.address.is_unspecified,
    "ip_is_loopback": lambda one: one.address.is_loopback,
    "ip_is_link_local_multicast": _is_link_local_multicast,
    "ip_is_link_local_unicast": _is_link_local_unicast,
    "ip_is_global_unicast": _is_global_unicast,
    "string_to_cidr": _cidr,
    "cidr_to_string": str,
    "is_cidr": _reads(_cidr),
    "cidr_ip": lambda one: IpValue(one.address),
    "cidr_prefix_length": lambda one: one.bits,
    "cidr_masked": CidrValue.masked,
    "cidr_contains_ip_string": _contains_ip,
    "cidr_contains_ip_ip": lambda one, other: one.covers(other.address),
    "cidr_contains_cidr_string": _contains_cidr_text,
    "cidr_contains_cidr": _contains_cidr,
}


def address_error(text: str) -> str:
    """Return why a text is no address; the empty text if it is one."""
    try:
        _address(text)
    except _AddressError as err:
        return str(err)
    return ""
