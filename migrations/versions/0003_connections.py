"""What robots say of their connection, what the monitor means to do about a drift, and why a calibration was asked for.

Revision ID: 0003_connections
Revises: 0002_drift
"""

from __future__ import annotations

from alembic import op

revision = "0003_connections"
down_revision = "0002_drift"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE connections (
    robot TEXT NOT NULL,
    state TEXT NOT NULL,
    stamp TIMESTAMPTZ NOT NULL,
    received_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT connections_pkey PRIMARY KEY (robot),
    CONSTRAINT connections_state_check CHECK (state IN ('ONLINE', 'OFFLINE', 'CONNECTIONBROKEN')),
    CONSTRAINT connections_robot_fkey FOREIGN KEY(robot) REFERENCES robots (robot) ON DELETE CASCADE
);

CREATE TABLE recalibrations (
    robot TEXT NOT NULL,
    version INTEGER NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    evidence TEXT NOT NULL,
    from_ns BIGINT NOT NULL,
    to_ns BIGINT NOT NULL,
    moved JSONB DEFAULT '[]'::jsonb NOT NULL,
    reason TEXT,
    request JSONB,
    proposed_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT recalibrations_pkey PRIMARY KEY (robot),
    CONSTRAINT recalibrations_robot_fkey FOREIGN KEY(robot) REFERENCES robots (robot) ON DELETE CASCADE
);

ALTER TABLE calibrations ADD COLUMN cause TEXT DEFAULT '' NOT NULL;
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
