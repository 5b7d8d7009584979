"""The first schema.

Revision ID: 0001
Revises: nothing

Plain SQL, frozen: `app.database.tables` moves on, and a migration must not move with it.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    robot TEXT NOT NULL,
    at TIMESTAMPTZ DEFAULT now() NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    old TEXT,
    new TEXT,
    reason TEXT DEFAULT '' NOT NULL,
    CONSTRAINT audit_pkey PRIMARY KEY (robot, id)
);

CREATE TABLE dead_letters (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    robot TEXT,
    fleet TEXT,
    topic TEXT NOT NULL,
    content_type TEXT,
    payload BYTEA NOT NULL,
    payload_bytes BIGINT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    received_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    replayed_at TIMESTAMPTZ,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (id)
);
CREATE INDEX dead_letters_expires_at_idx ON dead_letters (expires_at);
CREATE INDEX dead_letters_reason_id_idx ON dead_letters (reason, id);
CREATE INDEX dead_letters_robot_id_idx ON dead_letters (robot, id);

CREATE TABLE descriptions (
    sha256 TEXT NOT NULL,
    content BYTEA NOT NULL,
    media_type TEXT NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT descriptions_pkey PRIMARY KEY (sha256)
);

CREATE TABLE idempotency_keys (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    request_sha256 BYTEA NOT NULL,
    status SMALLINT,
    headers JSONB DEFAULT '{}'::jsonb NOT NULL,
    body BYTEA,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (owner, key)
);
CREATE INDEX idempotency_keys_expires_at_idx ON idempotency_keys (expires_at);

CREATE TABLE recordings (
    robot TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    name TEXT DEFAULT '' NOT NULL,
    first_ns BIGINT NOT NULL,
    last_ns BIGINT NOT NULL,
    samples BIGINT NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT recordings_pkey PRIMARY KEY (robot, boot_id),
    CONSTRAINT recordings_id_key UNIQUE (id)
);
CREATE INDEX recordings_robot_last_ns_idx ON recordings (robot, last_ns);

CREATE TABLE telemetry_batches (
    robot TEXT NOT NULL,
    stamp_ns BIGINT NOT NULL,
    identity BYTEA NOT NULL,
    stream TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    seq BIGINT,
    received_ns BIGINT NOT NULL,
    first_ns BIGINT NOT NULL,
    last_ns BIGINT NOT NULL,
    sample_count INTEGER NOT NULL,
    flags SMALLINT NOT NULL,
    names TEXT[] NOT NULL,
    layout TEXT[] NOT NULL,
    data BYTEA NOT NULL,
    CONSTRAINT telemetry_batches_pkey PRIMARY KEY (robot, stamp_ns, identity)) PARTITION BY RANGE (stamp_ns);

CREATE TABLE unstamped_messages (
    robot TEXT NOT NULL,
    identity BYTEA NOT NULL,
    received_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT unstamped_messages_pkey PRIMARY KEY (robot, identity)
);
CREATE INDEX unstamped_messages_received_at_idx ON unstamped_messages (received_at);

CREATE TABLE fleets (
    fleet TEXT NOT NULL,
    document JSONB DEFAULT '{}'::jsonb NOT NULL,
    description_sha256 TEXT,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    updated_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT fleets_pkey PRIMARY KEY (fleet),
    CONSTRAINT fleets_description_sha256_fkey FOREIGN KEY(description_sha256) REFERENCES descriptions (sha256)
);

CREATE TABLE api_keys (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    token_sha256 BYTEA NOT NULL,
    scopes TEXT[] NOT NULL,
    fleet TEXT,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    expires_at TIMESTAMPTZ,
    revoked_at TIMESTAMPTZ,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_scopes_check CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'operate', 'admin']),
    CONSTRAINT api_keys_token_sha256_key UNIQUE (token_sha256),
    CONSTRAINT api_keys_fleet_fkey FOREIGN KEY(fleet) REFERENCES fleets (fleet) ON DELETE CASCADE
);

CREATE TABLE robots (
    robot TEXT NOT NULL,
    fleet TEXT NOT NULL,
    declaration JSONB NOT NULL,
    description_sha256 TEXT,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    updated_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT robots_pkey PRIMARY KEY (robot),
    CONSTRAINT robots_fleet_fkey FOREIGN KEY(fleet) REFERENCES fleets (fleet),
    CONSTRAINT robots_description_sha256_fkey FOREIGN KEY(description_sha256) REFERENCES descriptions (sha256)
);
CREATE INDEX robots_fleet_robot_idx ON robots (fleet, robot);

CREATE TABLE calibrations (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    robot TEXT NOT NULL,
    state TEXT DEFAULT 'queued' NOT NULL,
    stage TEXT DEFAULT '' NOT NULL,
    progress DOUBLE PRECISION DEFAULT 0 NOT NULL,
    trials INTEGER DEFAULT 0 NOT NULL,
    best DOUBLE PRECISION,
    request JSONB NOT NULL,
    requested_by TEXT DEFAULT '' NOT NULL,
    reason TEXT,
    version INTEGER,
    report_html TEXT,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    CONSTRAINT calibrations_pkey PRIMARY KEY (id),
    CONSTRAINT calibrations_state_check CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT calibrations_progress_check CHECK (progress BETWEEN 0 AND 1),
    CONSTRAINT calibrations_robot_fkey FOREIGN KEY(robot) REFERENCES robots (robot) ON DELETE CASCADE
);
CREATE INDEX calibrations_robot_created_at_idx ON calibrations (robot, created_at DESC, id DESC);
CREATE INDEX calibrations_unfinished_idx ON calibrations (created_at) WHERE state IN ('queued', 'running');

CREATE TABLE trials (
    calibration UUID NOT NULL,
    number INTEGER NOT NULL,
    structure JSONB NOT NULL,
    params JSONB NOT NULL,
    value DOUBLE PRECISION,
    state TEXT NOT NULL,
    CONSTRAINT trials_pkey PRIMARY KEY (calibration, number),
    CONSTRAINT trials_calibration_fkey FOREIGN KEY(calibration) REFERENCES calibrations (id) ON DELETE CASCADE
);

CREATE TABLE twin_versions (
    robot TEXT NOT NULL,
    version INTEGER NOT NULL,
    document BYTEA NOT NULL,
    digest TEXT NOT NULL,
    calibration UUID,
    state TEXT DEFAULT 'candidate' NOT NULL,
    state_changed_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    created_at TIMESTAMPTZ DEFAULT now() NOT NULL,
    CONSTRAINT twin_versions_pkey PRIMARY KEY (robot, version),
    CONSTRAINT twin_versions_version_check CHECK (version > 0),
    CONSTRAINT twin_versions_state_check CHECK (state IN ('candidate', 'active', 'retired', 'rejected')),
    CONSTRAINT twin_versions_robot_fkey FOREIGN KEY(robot) REFERENCES robots (robot) ON DELETE CASCADE,
    CONSTRAINT twin_versions_calibration_fkey FOREIGN KEY(calibration) REFERENCES calibrations (id) ON DELETE SET NULL
);
CREATE UNIQUE INDEX twin_versions_active_key ON twin_versions (robot) WHERE state = 'active';
CREATE INDEX twin_versions_calibration_idx ON twin_versions (calibration);
"""

TELEMETRY = """
-- Floats don't compress: trying costs more time than the write.
ALTER TABLE telemetry_batches ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE telemetry_batches_default PARTITION OF telemetry_batches DEFAULT;
"""


def upgrade() -> None:
    for statement in (TABLES + TELEMETRY).split(";\n"):
        if statement.strip():
            op.execute(statement)
