"""The store: tables, engine, migrations, partitions, and telemetry's way in and out. SQLAlchemy Core on asyncpg."""
