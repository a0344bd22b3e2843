"""What machines cost: the stretches that are paid for now, and the bill."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, String

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "machine_lives",
        Column("machine", String, primary_key=True),
        Column("node", String, nullable=False),
        Column("pool", String, nullable=False),
        Column("running", Boolean, nullable=False),
        Column("launched", Float, nullable=False),
        Column("until", Float, nullable=False),
        Column("paid_ms", BigInteger, nullable=False),
        Column("price", BigInteger, nullable=False),
        Column("user", String, nullable=False),
        Column("account", String, nullable=False),
        Column("job", String, nullable=False),
    )
    op.create_table(
        "uses",
        Column("hour", BigInteger, primary_key=True),
        Column("pool", String, primary_key=True),
        Column("spending", String, primary_key=True),
        Column("user", String, primary_key=True),
        Column("account", String, primary_key=True),
        Column("job", String, primary_key=True),
        Column("price", BigInteger, primary_key=True),
        Column("ms", BigInteger, nullable=False),
    )
