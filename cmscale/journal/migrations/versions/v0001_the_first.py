"""All tables up to the first release, and what was added to them before there were steps.

A journal of 0.1.0, or of any time until now, has some of them: what is there is left as it is.
"""

from alembic import op
from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, String

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "operations",
        Column("id", String, primary_key=True),
        Column("verb", String, nullable=False),
        Column("pool", String, nullable=False),
        Column("all_or_none", Boolean, nullable=False),
        Column("reason", String, nullable=False),
        Column("began", Float, nullable=False),
        Column("ended", Float),
        if_not_exists=True,
    )
    op.create_index("ix_operations_began", "operations", ["began"], if_not_exists=True)
    op.create_index("ix_operations_ended", "operations", ["ended"], if_not_exists=True)
    op.create_table(
        "operation_nodes",
        Column("op", String, primary_key=True),
        Column("node", String, primary_key=True),
        Column("place", Integer, nullable=False),
        Column("job", String),
        Column("need", Integer, nullable=False),
        Column("machine", String),
        Column("result", String),
        Column("detail", String),
        if_not_exists=True,
    )
    op.create_index("ix_operation_nodes_job", "operation_nodes", ["job"], if_not_exists=True)
    op.create_index("ix_operation_nodes_machine", "operation_nodes", ["machine"], if_not_exists=True)
    op.create_table(
        "idle",
        Column("node", String, primary_key=True),
        Column("since", Float, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "closures",
        Column("pool", String, primary_key=True),
        Column("until", Float, nullable=False),
        Column("result", String, nullable=False),
        Column("why", String, nullable=False),
        Column("strikes", Integer, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "facts",
        Column("kind", String, primary_key=True),
        Column("subject", String, primary_key=True),
        Column("at", Float, nullable=False),
        Column("until", Float, nullable=False),
        Column("why", String, nullable=False),
        Column("by", String, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "busy",
        Column("hour", Integer, primary_key=True),
        Column("pool", String, primary_key=True),
        Column("most", Integer, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "events",
        Column("id", Integer, primary_key=True),
        Column("at", Float, nullable=False),
        Column("kind", String, nullable=False),
        Column("subject", String, nullable=False),
        Column("text", String, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_events_at", "events", ["at"], if_not_exists=True)
    op.create_table(
        "evidence",
        Column("machine", String, primary_key=True),
        Column("node", String, nullable=False),
        Column("at", Float, nullable=False),
        Column("why", String, nullable=False),
        Column("text", String, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_evidence_node", "evidence", ["node"], if_not_exists=True)
    op.create_table(
        "plans",
        Column("tick", String, primary_key=True),
        Column("at", Float, nullable=False),
        Column("plan", String, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_plans_at", "plans", ["at"], if_not_exists=True)
    op.create_table(
        "snapshots",
        Column("tick", String, primary_key=True),
        Column("at", Float, nullable=False),
        Column("bytes", Integer, nullable=False),
        Column("view", LargeBinary, nullable=False),
        Column("plan", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index("snapshots_by_age", "snapshots", ["at", "bytes"], if_not_exists=True)
