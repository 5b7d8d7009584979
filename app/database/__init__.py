"""Engine, transactions and tables: SQLAlchemy Core on asyncpg, COPY for telemetry."""
