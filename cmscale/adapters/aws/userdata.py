"""What is a machine handed at its launch, to be run by cloud-init at its first boot?

EC2 takes little of it, and cloud-init unpacks what is packed: so a script that is too long is packed, and one that is
still too long is refused before anything is launched.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

from cmscale.ports import Misconfigured

LONGEST = 16 * 1024
"""What EC2 takes, before it is encoded for the way."""


def user_data(script: Path, words: Mapping[str, str]) -> bytes:
    """The script, with `@WORD@` replaced for each word. Raises Misconfigured if it can't be read, or is too long."""
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the user data cannot be read: {error}") from None
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    plain = text.encode()
    if len(plain) <= LONGEST:
        return plain
    packed = gzip.compress(plain, mtime=0)  # the same bytes each time: a launch is repeated as it was
    if len(packed) > LONGEST:
        raise Misconfigured(
            f"user data {script} is {len(plain)} bytes long, {len(packed)} packed; EC2 takes {LONGEST} at most"
        )
    return packed
