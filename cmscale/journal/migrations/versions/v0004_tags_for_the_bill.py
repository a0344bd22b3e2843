"""With which tags for the cloud's bill a launch is made, and made again."""

from alembic import op
from sqlalchemy import Column, String

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("operations", Column("tags", String))
