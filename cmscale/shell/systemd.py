"""What is systemd told of us, if it started us?

Datagrams to the socket that it names in NOTIFY_SOCKET, as sd_notify(3) describes them. Without one, nothing is told.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


def notify(*assignments: str) -> None:
    """Tell systemd, such as "READY=1". That it cannot be told is no reason to stop."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # an abstract socket
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.settimeout(1.0)
        out.connect(address)
        out.send("\n".join(assignments).encode())


def ready(status: str) -> None:
    notify("READY=1", f"STATUS={_line(status)}")


def alive() -> None:
    """To be told by whatever must not hang, not by a thread beside it."""
    notify("WATCHDOG=1")


def doing(status: str) -> None:
    notify(f"STATUS={_line(status)}")


def reloading() -> None:
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def stopping() -> None:
    notify("STOPPING=1")


def _line(text: str) -> str:
    return " ".join(text.split())
