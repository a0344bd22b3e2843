"""What Alembic runs before the steps: they are taken in the transaction of whoever asked for them."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
