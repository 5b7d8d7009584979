from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from app.database.tables import telemetry_batches
from app.database.telemetry import MAX_BATCH_SPAN_NS, BatchFlag, BatchOrigin, BatchRow, pack, unpack
from app.errors import TelemetryError
from app.telemetry import FloatArray, RobotId, SampleBatch

STAMP_NS = 1_750_000_000_123_456_789


def _batch(values: FloatArray | None = None, **changes: Any) -> SampleBatch:
    position = np.array([[0.5, -0.25], [np.nan, 1.0]]) if values is None else values
    given: dict[str, Any] = {
        "stamp_ns": STAMP_NS,
        "dt_ns": np.arange(len(position), dtype=np.int64) * 1_000_000,
        "names": ("shoulder", "elbow"),
        "channels": {"position": position},
        "context": {},
    }
    return SampleBatch(**(given | changes))


def _origin(**changes: Any) -> BatchOrigin:
    given: dict[str, Any] = {"robot": RobotId("arm-1"), "stream": "joints", "received_ns": STAMP_NS + 5}
    return BatchOrigin(**(given | changes))


def _unpacked(row: BatchRow) -> SampleBatch:
    return unpack(row.stamp_ns, row.sample_count, row.names, row.layout, row.data)


def _identity(batch: SampleBatch | None = None, **origin: Any) -> bytes:
    return pack(batch or _batch(), _origin(**origin)).identity


def test_a_rows_fields_are_the_tables_columns_in_order() -> None:
    assert BatchRow._fields == tuple(column.name for column in telemetry_batches.columns)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 20), st.just(2)), elements=st.floats(allow_subnormal=True)),
    st.lists(st.integers(-MAX_BATCH_SPAN_NS, MAX_BATCH_SPAN_NS), min_size=20, max_size=20),
)
def test_what_is_packed_comes_back_bit_for_bit(values: FloatArray, offsets: list[int]) -> None:
    dt_ns = np.array(offsets[: len(values)], dtype=np.int64)
    temperature = values[:, 0].copy()
    batch = _batch(values, dt_ns=dt_ns, context={"temperature_c": temperature})
    back = _unpacked(pack(batch, _origin()))
    assert (back.stamp_ns, back.names) == (batch.stamp_ns, batch.names)
    np.testing.assert_array_equal(back.dt_ns, dt_ns)
    np.testing.assert_array_equal(back.channels["position"], values)
    np.testing.assert_array_equal(np.signbit(back.channels["position"]), np.signbit(values))
    np.testing.assert_array_equal(back.context["temperature_c"], temperature)


def test_float32_values_take_half_the_space_of_float64() -> None:
    narrow = np.array([[0.1, 0.2]], dtype=np.float32).astype(np.float64)
    wide = np.array([[0.1, 0.2]])
    assert pack(_batch(narrow), _origin()).layout == ["position:f4"]
    assert pack(_batch(wide), _origin()).layout == ["position:f8"]
    assert len(pack(_batch(narrow), _origin()).data) == 8 + 2 * 4
    assert len(pack(_batch(wide), _origin()).data) == 8 + 2 * 8


def test_channels_and_context_keep_their_own_width_and_place() -> None:
    channels = {"command_position": np.array([[0.1, 0.2]]), "position": np.array([[1.0, 2.0]])}
    row = pack(_batch(dt_ns=np.array([0]), channels=channels, context={"supply_v": np.array([7.4])}), _origin())
    assert row.layout == ["position:f4", "command_position:f8", "context.supply_v:f8"]
    back = _unpacked(row)
    np.testing.assert_array_equal(back.channels["position"], channels["position"])
    np.testing.assert_array_equal(back.channels["command_position"], channels["command_position"])
    np.testing.assert_array_equal(back.context["supply_v"], [7.4])


def test_first_and_last_span_the_samples_though_they_are_out_of_order() -> None:
    row = pack(_batch(dt_ns=np.array([2_000, -3_000])), _origin())
    assert (row.first_ns, row.last_ns, row.sample_count) == (STAMP_NS - 3_000, STAMP_NS + 2_000, 2)


def test_a_repeated_message_has_the_same_identity_whenever_it_is_received() -> None:
    assert _identity(boot_id="b", seq=3) == _identity(boot_id="b", seq=3, received_ns=STAMP_NS + 99)
    assert _identity() == _identity(received_ns=STAMP_NS + 99)
    assert _identity() == _identity(boot_id="b"), "without a seq the stamp and the names are the message's identity"


def test_stream_boot_seq_and_names_each_tell_messages_apart() -> None:
    with_seq = _identity(boot_id="b", seq=3)
    assert with_seq not in {
        _identity(boot_id="b", seq=4),
        _identity(boot_id="c", seq=3),
        _identity(boot_id="b", seq=3, stream="command"),
        _identity(boot_id="b"),
    }
    assert _identity() != _identity(_batch(names=("shoulder", "wrist")))
    assert _identity(_batch(names=("ab", "c"))) != _identity(_batch(names=("a", "bc")))


def test_without_a_stamp_only_boot_and_seq_together_identify() -> None:
    missing = BatchFlag.STAMP_MISSING
    both = pack(_batch(), _origin(boot_id="b", seq=3, flags=missing))
    assert both.flags == missing
    assert both.needs_unstamped_entry
    for origin in (_origin(seq=3, flags=missing), _origin(boot_id="b", flags=missing), _origin(flags=missing)):
        row = pack(_batch(), origin)
        assert row.flags == missing | BatchFlag.UNIDENTIFIED
        assert not row.needs_unstamped_entry
    assert _identity(flags=missing) != _identity(flags=missing, received_ns=STAMP_NS + 6)
    assert not pack(_batch(), _origin(boot_id="b", seq=3)).needs_unstamped_entry


def test_a_batch_without_samples_is_refused() -> None:
    with pytest.raises(TelemetryError, match="holds no samples") as refused:
        pack(_batch(np.empty((0, 2))), _origin())
    assert refused.value.reason == "empty"


def test_samples_more_than_a_day_from_the_stamp_are_refused() -> None:
    with pytest.raises(TelemetryError, match="86400000000001 ns is more than a day") as refused:
        pack(_batch(dt_ns=np.array([0, MAX_BATCH_SPAN_NS + 1])), _origin())
    assert refused.value.reason == "batch_span"
