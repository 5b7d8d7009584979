"""Drift: how each robot's active version fits it now, and how it did.

Revision ID: 0002_drift
Revises: 0001
"""

from __future__ import annotations

from alembic import op

revision = "0002_drift"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE drift (
    robot TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    since TIMESTAMPTZ NOT NULL,
    scored_at TIMESTAMPTZ,
    scored_ns BIGINT,
    score DOUBLE PRECISION,
    worst_score DOUBLE PRECISION,
    worst_joint TEXT,
    per_joint JSONB DEFAULT '{}'::jsonb NOT NULL,
    memory JSONB DEFAULT '{}'::jsonb NOT NULL,
    telemetry_ns BIGINT,
    telemetry_at TIMESTAMPTZ,
    recorded_at TIMESTAMPTZ,
    reason TEXT,
    updated_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT drift_pkey PRIMARY KEY (robot),
    CONSTRAINT drift_state_check CHECK (state IN ('ok', 'watch', 'drifted', 'idle', 'stale')),
    CONSTRAINT drift_robot_fkey FOREIGN KEY(robot) REFERENCES robots (robot) ON DELETE CASCADE
);

CREATE TABLE drift_scores (
    robot TEXT NOT NULL,
    at TIMESTAMPTZ NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    score DOUBLE PRECISION,
    worst_score DOUBLE PRECISION,
    worst_joint TEXT,
    per_joint JSONB DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT drift_scores_pkey PRIMARY KEY (robot, at),
    CONSTRAINT drift_scores_robot_fkey FOREIGN KEY(robot) REFERENCES robots (robot) ON DELETE CASCADE
);
CREATE INDEX drift_scores_at_idx ON drift_scores USING brin (at);
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
