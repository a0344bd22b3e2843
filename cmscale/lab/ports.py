"""Which TCP ports may this lab use, while other labs on the same machine choose theirs?

Ports are given out in blocks. A block is taken by binding an abstract unix socket named after it, which no file
remembers and which the kernel frees when its holder dies, however it dies. Ports of the ephemeral range are left alone:
any outgoing connection might sit on them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from cmscale.lab.processes import LabError

BLOCK = 32
LOWEST, HIGHEST = 10240, 65535


class Ports:
    """Ports held by this process until `close`."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []

    def take(self, count: int) -> range:
        """So many free ports in a row, claimed against every other lab."""
        blocks = -(-count // BLOCK)
        for first in _candidates(blocks):
            claims = _claim(first, blocks)
            if claims is None:
                continue
            ports = range(first, first + count)
            if all(map(_free, ports)):
                self._claims += claims
                return ports
            for claim in claims:
                claim.close()
        raise LabError(f"No {count} free TCP ports in a row are left outside the ephemeral range for another lab.")

    def close(self) -> None:
        """Give all ports back."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()


def _candidates(blocks: int) -> Iterator[int]:
    """First ports of rows of blocks that keep clear of the ephemeral range."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split())
    for first in range(LOWEST, HIGHEST - blocks * BLOCK, BLOCK):
        if first + blocks * BLOCK <= low or first > high:
            yield first


def _claim(first: int, blocks: int) -> list[socket.socket] | None:
    claims: list[socket.socket] = []
    for block in range(first, first + blocks * BLOCK, BLOCK):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        claims.append(claim)
        try:
            claim.bind(f"\0cm-scale-lab-ports-{block}")
        except OSError:
            for each in claims:
                each.close()
            return None
    return claims


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - slurmd binds all addresses; nothing listens here
        except OSError:
            return False
    return True
