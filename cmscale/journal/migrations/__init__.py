"""How does a journal become one of this version?

By Alembic, one step after another, all of them in one transaction: a kill in between leaves the journal as it was.

To add a table, write it into `tables.py`, and into a new file in `versions` how a journal comes by it:

    v0002_what_it_is_for.py     revision = "0002"     down_revision = "0001"     def upgrade() -> None: ...

Of two branches that took the same number, the second to arrive takes the next. `tests/journal/test_migrations.py` tells
what tables and steps disagree on. A step only adds, and what it adds to a table has a default: a daemon of the version
before may run beside, on another head node.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Connection, inspect

FOLDER = Path(__file__).parent

_VERSION = "alembic_version"


class OtherVersion(Exception):
    """The journal can't be used as it is: a later version wrote it, or an earlier one did and it may not be changed."""


def empty(db: Connection) -> bool:
    """True if nothing was ever written there."""
    return not inspect(db).get_table_names()


def step(db: Connection) -> str | None:
    """The last step that a journal has taken; None if it knows of none: it is empty, or of 0.1.0."""
    if not inspect(db).has_table(_VERSION):
        return None
    taken = db.exec_driver_sql(f"SELECT version_num FROM {_VERSION}").scalar()  # noqa: S608 - a name of ours
    return None if taken is None else str(taken)


def current(db: Connection, folder: Path = FOLDER) -> bool:
    """True if the journal is one of this version; raises OtherVersion if it is one of a later."""
    known, taken = steps(folder), step(db)
    if taken is not None and taken not in known:
        raise OtherVersion(
            f'a later version wrote it: its tables are of step "{taken}", we know those up to "{known[-1]}"'
        )
    return taken == known[-1]


@cache
def steps(folder: Path = FOLDER) -> tuple[str, ...]:
    """Every step, the last one last. Their names are told by their files: Alembic takes longer to load than a look."""
    return tuple(sorted(path.name[1:5] for path in (folder / "versions").glob("v*.py")))


def upgrade(db: Connection, folder: Path = FOLDER) -> None:
    """Make it one of this version, within the transaction that is under way."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = db
    command.upgrade(config, "head")
