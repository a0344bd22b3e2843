"""Where are the files that come with cm-scale but are no Python package: policies, examples, units?

From a checkout they are used in place, beside the package; a wheel carries them inside it, under share/.
"""

from __future__ import annotations

from pathlib import Path

from cmscale.ports import Misconfigured

_PACKAGE = Path(__file__).parents[1]


def share_dir(name: str) -> Path:
    """The shipped folder of that name; raises Misconfigured if this installation has none."""
    # Inside first: beside an installed package, a folder "policies" would be somebody else's.
    for folder in (_PACKAGE / "share" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise Misconfigured(f"this installation of cm-scale lacks its folder {name}: looked in {_PACKAGE / 'share'}")
