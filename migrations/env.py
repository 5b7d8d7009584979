"""Run by Alembic; `app.database.migrate` hands over a connection that is in a transaction and holds the lock."""

from __future__ import annotations

from alembic import context

from app.database.tables import metadata
from app.errors import ServiceError

connection = context.config.attributes.get("connection")
if connection is None:
    raise ServiceError("migrations run through `twincal migrate`, which brings the connection")
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
