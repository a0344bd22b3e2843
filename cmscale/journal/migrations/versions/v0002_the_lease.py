"""Which of two daemons leads: the lease, a table of one row."""

from alembic import op
from sqlalchemy import Column, Float, Integer, String

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "lease",
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("term", Integer, nullable=False),
        Column("host", String, nullable=False),
        Column("pid", Integer, nullable=False),
        Column("life", String, nullable=False),
        Column("since", Float, nullable=False),
        Column("until", Float, nullable=False),
    )
