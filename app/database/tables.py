"""Every table, as SQLAlchemy Core; `migrations/` creates them and a test holds the two equal.

Keys of telemetry and versions begin with the robot, so that they can be distributed by it. Instants of telemetry are
bigint nanoseconds since the epoch (a timestamptz would lose the last three digits); all others are timestamptz.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)


def _instant(name: str, *, optional: bool = False, now: bool = False) -> Column[Any]:
    default = text("now()") if now else None
    return Column(name, DateTime(timezone=True), nullable=optional, server_default=default)


descriptions: Final = Table(
    "descriptions",
    metadata,
    # Lower-case hex of the bytes' digest: what REST, documents and people call it by.
    Column("sha256", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("media_type", Text, nullable=False),
    _instant("created_at", now=True),
)

fleets: Final = Table(
    "fleets",
    metadata,
    Column("fleet", Text, primary_key=True),
    # Priors and recalibration policy, as the API validated them.
    Column("document", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("description_sha256", Text, ForeignKey("descriptions.sha256")),
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
)

robots: Final = Table(
    "robots",
    metadata,
    Column("robot", Text, primary_key=True),
    Column("fleet", Text, ForeignKey("fleets.fleet"), nullable=False),
    # twincal.robot/1
    Column("declaration", JSONB, nullable=False),
    Column("description_sha256", Text, ForeignKey("descriptions.sha256")),
    _instant("created_at", now=True),
    _instant("updated_at", now=True),
    Index(None, "fleet", "robot"),
)

# No foreign key to robots: one check a row is what the hottest path can do without; ingest knows who is registered.
telemetry_batches: Final = Table(
    "telemetry_batches",
    metadata,
    Column("robot", Text, nullable=False),
    # The robot's stamp, or our receipt where the flags say that it gave none. Partitions are days of this.
    Column("stamp_ns", BigInteger, nullable=False),
    # 16 bytes; see app.database.telemetry.identity.
    Column("identity", LargeBinary, nullable=False),
    Column("stream", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("seq", BigInteger),
    Column("received_ns", BigInteger, nullable=False),
    Column("first_ns", BigInteger, nullable=False),
    Column("last_ns", BigInteger, nullable=False),
    Column("sample_count", Integer, nullable=False),
    Column("flags", SmallInteger, nullable=False),
    Column("names", ARRAY(Text), nullable=False),
    # What `data` holds after its dt_ns, in order: `position:f4`, `context.supply_v:f8`.
    Column("layout", ARRAY(Text), nullable=False),
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("robot", "stamp_ns", "identity"),
    postgresql_partition_by="RANGE (stamp_ns)",
)

# A message with boot_id and seq but no stamp is told from its repeat here: its partition follows our receipt, which
# differs from one delivery to the next, so that the batches' own key can't.
unstamped_messages: Final = Table(
    "unstamped_messages",
    metadata,
    Column("robot", Text, nullable=False),
    Column("identity", LargeBinary, nullable=False),
    _instant("received_at"),
    PrimaryKeyConstraint("robot", "identity"),
    Index(None, "received_at"),
)

dead_letters: Final = Table(
    "dead_letters",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    # Of the topic, whether registered or not; NULL when the topic names none.
    Column("robot", Text),
    Column("fleet", Text),
    Column("topic", Text, nullable=False),
    Column("content_type", Text),
    Column("payload", LargeBinary, nullable=False),
    # Of the message as it came; more than the payload's length means that it was cut and can't be replayed.
    Column("payload_bytes", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    _instant("received_at"),
    _instant("expires_at"),
    _instant("replayed_at", optional=True),
    Index(None, "robot", "id"),
    Index(None, "reason", "id"),
    Index(None, "expires_at"),
)

recordings: Final = Table(
    "recordings",
    metadata,
    Column("robot", Text, nullable=False),
    # '' holds what came without a boot_id.
    Column("boot_id", Text, nullable=False),
    Column("id", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("name", Text, nullable=False, server_default=""),
    Column("first_ns", BigInteger, nullable=False),
    Column("last_ns", BigInteger, nullable=False),
    # Rows over all streams and messages, before those of one instant are merged.
    Column("samples", BigInteger, nullable=False),
    _instant("created_at", now=True),
    PrimaryKeyConstraint("robot", "boot_id"),
    Index("recordings_robot_last_ns_idx", "robot", "last_ns"),
)

calibrations: Final = Table(
    "calibrations",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("robot", Text, ForeignKey("robots.robot", ondelete="CASCADE"), nullable=False),
    Column("state", Text, nullable=False, server_default="queued"),
    Column("stage", Text, nullable=False, server_default=""),
    Column("progress", Double, nullable=False, server_default=text("0")),
    Column("trials", Integer, nullable=False, server_default=text("0")),
    Column("best", Double),
    Column("request", JSONB, nullable=False),
    Column("requested_by", Text, nullable=False, server_default=""),
    # Why, for people; empty where nobody said. What it publishes says so too.
    Column("cause", Text, nullable=False, server_default=""),
    Column("reason", Text),
    Column("version", Integer),
    Column("report_html", Text),
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    # Times a worker began it: a job that takes its worker down with it isn't tried for ever.
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    _instant("created_at", now=True),
    _instant("started_at", optional=True),
    _instant("finished_at", optional=True),
    CheckConstraint("state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"),
    CheckConstraint("progress BETWEEN 0 AND 1", name="progress"),
    Index("calibrations_robot_created_at_idx", "robot", text("created_at DESC"), text("id DESC")),
    Index("calibrations_unfinished_idx", "created_at", postgresql_where=text("state IN ('queued', 'running')")),
)

trials: Final = Table(
    "trials",
    metadata,
    Column("calibration", Uuid, ForeignKey("calibrations.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("structure", JSONB, nullable=False),
    Column("params", JSONB, nullable=False),
    # NULL for a trial without a value.
    Column("value", Double),
    Column("state", Text, nullable=False),
    PrimaryKeyConstraint("calibration", "number"),
)

twin_versions: Final = Table(
    "twin_versions",
    metadata,
    Column("robot", Text, ForeignKey("robots.robot", ondelete="CASCADE"), nullable=False),
    Column("version", Integer, nullable=False),
    # Canonical JSON of twincal.twin/1, byte for byte as it was sealed. Never updated.
    Column("document", LargeBinary, nullable=False),
    Column("digest", Text, nullable=False),
    Column("calibration", Uuid, ForeignKey("calibrations.id", ondelete="SET NULL")),
    Column("state", Text, nullable=False, server_default="candidate"),
    _instant("state_changed_at", now=True),
    _instant("created_at", now=True),
    PrimaryKeyConstraint("robot", "version"),
    CheckConstraint("version > 0", name="version"),
    CheckConstraint("state IN ('candidate', 'active', 'retired', 'rejected')", name="state"),
    # At most one active version a robot, whoever races whom.
    Index("twin_versions_active_key", "robot", unique=True, postgresql_where=text("state = 'active'")),
    Index(None, "calibration"),
)

# No foreign keys: the trail outlives what it is about.
audit: Final = Table(
    "audit",
    metadata,
    Column("id", BigInteger, Identity(always=True), nullable=False),
    Column("robot", Text, nullable=False),
    _instant("at", now=True),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("old", Text),
    Column("new", Text),
    Column("reason", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("robot", "id"),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("token_sha256", LargeBinary, nullable=False, unique=True),
    Column("scopes", ARRAY(Text), nullable=False),
    # NULL: every fleet.
    Column("fleet", Text, ForeignKey("fleets.fleet", ondelete="CASCADE")),
    _instant("created_at", now=True),
    _instant("expires_at", optional=True),
    _instant("revoked_at", optional=True),
    CheckConstraint("cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'operate', 'admin']", name="scopes"),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    # The API key's id, or '' for a loopback service without keys.
    Column("owner", Text, nullable=False),
    Column("key", Text, nullable=False),
    # Of method, path and body: the same key with another request is a mistake.
    Column("request_sha256", LargeBinary, nullable=False),
    # NULL while the first request is still being answered.
    Column("status", SmallInteger),
    Column("headers", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("body", LargeBinary),
    _instant("created_at", now=True),
    _instant("expires_at"),
    PrimaryKeyConstraint("owner", "key"),
    Index(None, "expires_at"),
)

# How each robot's active version fits it now: what the monitor goes on from after a restart, and what people read.
drift: Final = Table(
    "drift",
    metadata,
    Column("robot", Text, ForeignKey("robots.robot", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    _instant("since"),
    # End of what was judged last, for people; end of the latest window looked at, to go on from.
    _instant("scored_at", optional=True),
    Column("scored_ns", BigInteger),
    # Multiples of the version's own baseline; NULL until something moved enough to judge.
    Column("score", Double),
    Column("worst_score", Double),
    Column("worst_joint", Text),
    Column("per_joint", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    # What hysteresis and onset detection carry from one window to the next.
    Column("memory", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    # Stamp of the latest sample when last looked at, and when it was first seen by our clock.
    Column("telemetry_ns", BigInteger),
    _instant("telemetry_at", optional=True),
    # End of the latest window in the history.
    _instant("recorded_at", optional=True),
    # Why the robot can't be watched; NULL while it can.
    Column("reason", Text),
    _instant("updated_at", now=True),
    CheckConstraint("state IN ('ok', 'watch', 'drifted', 'idle', 'stale')", name="state"),
)

drift_scores: Final = Table(
    "drift_scores",
    metadata,
    Column("robot", Text, ForeignKey("robots.robot", ondelete="CASCADE"), nullable=False),
    # The window's end.
    _instant("at"),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("score", Double),
    Column("worst_score", Double),
    Column("worst_joint", Text),
    Column("per_joint", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    PrimaryKeyConstraint("robot", "at"),
    # For the retention: rows come in the order of their time, so that a summary of blocks is enough.
    Index(None, "at", postgresql_using="brin"),
)

# What each robot last said of its connection, or its broker for it.
connections: Final = Table(
    "connections",
    metadata,
    Column("robot", Text, ForeignKey("robots.robot", ondelete="CASCADE"), primary_key=True),
    Column("state", Text, nullable=False),
    # The robot's; a will's is from before it connected, so the latest that the robot gave stays.
    _instant("stamp"),
    _instant("received_at"),
    CheckConstraint("state IN ('ONLINE', 'OFFLINE', 'CONNECTIONBROKEN')", name="state"),
)

# A drift under way, of robots that have one, and what the monitor waits for or proposes about it.
recalibrations: Final = Table(
    "recalibrations",
    metadata,
    Column("robot", Text, ForeignKey("robots.robot", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False),
    _instant("since"),
    # How far it has drifted, in words.
    Column("evidence", Text, nullable=False),
    # By the robot's clock: telemetry between these is from after the change, and was scored.
    Column("from_ns", BigInteger, nullable=False),
    Column("to_ns", BigInteger, nullable=False),
    # How much of it moved: [begin_ns, end_ns, moving_s], oldest first, coarse.
    Column("moved", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    # Of a proposal, NULL before it: why, and the request that would do it.
    Column("reason", Text),
    Column("request", JSONB),
    _instant("proposed_at", optional=True),
    _instant("updated_at", now=True),
)

__all__ = [
    "api_keys",
    "audit",
    "calibrations",
    "connections",
    "dead_letters",
    "descriptions",
    "drift",
    "drift_scores",
    "fleets",
    "idempotency_keys",
    "metadata",
    "recalibrations",
    "recordings",
    "robots",
    "telemetry_batches",
    "trials",
    "twin_versions",
    "unstamped_messages",
]
