"""`python -m tests.storms [WORD...]`: let the storms blow, or those with such a word in their name; show their toll."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.storms.storms import STORMS
from tests.storms.table import rows
from tests.storms.weather import ENVIRONMENT, double


def main(words: list[str]) -> None:
    os.environ.update(ENVIRONMENT)
    logging.disable()  # it rains warnings
    chosen = [each for each in STORMS if not words or any(word in each.name for word in words)]
    with TemporaryDirectory() as made, double(Path(made)) as ec2:
        for row in rows((each, each.storm(ec2, Path(made) / each.name).blow()) for each in chosen):
            print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
