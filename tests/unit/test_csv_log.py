from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from app.errors import LogError
from app.ingest.files import read_log

HEADER = "t_s,b.position,a.position,a.command_position,supply_v\n"


def write(path: Path, text: str) -> Path:
    log = path / "log.csv"
    log.write_text(text, encoding="utf-8")
    return log


def test_times_are_read_as_decimals_into_whole_nanoseconds(tmp_path: Path) -> None:
    text = "t_s,a.position\n1767225600.000000001,1\n1767225600.1,2\n1767225600.3000000021,3\n"
    recording = read_log(write(tmp_path, text))
    assert recording.origin_ns == 1767225600_000000001
    assert recording.t_ns.tolist() == [0, 99_999_999, 300_000_001]


def test_columns_are_keyed_by_name_and_names_are_sorted(tmp_path: Path) -> None:
    recording = read_log(write(tmp_path, HEADER + "0,1,2,3,7.4\n0.5,,-0,nan,inf\n"))
    assert recording.name == "log"
    assert recording.names == ("a", "b")
    np.testing.assert_array_equal(recording.channels["position"], [[2, 1], [-0.0, np.nan]])
    assert np.signbit(recording.channels["position"][1, 0])
    np.testing.assert_array_equal(recording.channels["command_position"], [[3, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(recording.context["supply_v"], [7.4, np.nan])


def test_a_joint_name_may_hold_dots_and_the_last_one_ends_it(tmp_path: Path) -> None:
    recording = read_log(write(tmp_path, 't_s,arm.left.elbow.position,"a,b.effort"\n0,1,2\n'))
    assert recording.names == ("a,b", "arm.left.elbow")


def test_a_channel_without_any_value_is_absent(tmp_path: Path) -> None:
    recording = read_log(write(tmp_path, "t_s,a.position,a.velocity,temperature_c\n0,1,,\n1,2,,\n"))
    assert list(recording.channels) == ["position"]
    assert recording.context == {}


def test_byte_order_mark_carriage_returns_and_blank_lines_are_accepted(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(b"\xef\xbb\xbft_s,a.position\r\n0,1\r\n1,2\r\n\r\n")
    assert read_log(log).t_ns.tolist() == [0, 1_000_000_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "log.csv:1: there is no column t_s"),
        ("time,a.position\n0,1\n", "log.csv:1: there is no column t_s"),
        ("t_s;a.position\n0;1\n", "separate columns by commas"),
        ("t_s,a.position,a.torque\n0,1,2\n", "log.csv:1: column 'a.torque' (number 3) is unknown"),
        ("t_s,position\n0,1\n", "column 'position' (number 2) is unknown"),
        ("t_s,a.position,a.position\n0,1,2\n", "column 'a.position' is there twice"),
        ("t_s,supply_v\n0,1\n", "there is no joint column"),
        ("t_s,a.position\n", "holds no rows"),
        ("t_s,a.position\n0,1\n0.5,abc\n", "log.csv:3: column a.position: 'abc' is not a number"),
        ("t_s,a.position\n0,1_000\n", "log.csv:2: column a.position: '1_000' is not a number"),
        ("t_s,a.position\n0,1e400\n", "log.csv:2: column a.position: '1e400' is not a number"),
        ("t_s,a.position\n,1\n", "log.csv:2: column t_s: '' is not a time"),
        ("t_s,a.position\n1e30,1\n", "log.csv:2: column t_s: '1e30' is not a time"),
        ("t_s,a.position\nNaN,1\n", "log.csv:2: column t_s: 'NaN' is not a time"),
        ("t_s,a.position\n1,1\n1,2\n", "log.csv:3: column t_s: 1 does not come after the row before it"),
        ("t_s,a.position\n1,1\n0.5,2\n", "log.csv:3: column t_s: 0.5 does not come after"),
        ("t_s,a.position\n1,1\n2\n", "log.csv:3: has 1 cells (2, as the header has)"),
        ('t_s,a.position\n1,1\n"2,3\n', "log.csv:3: is not CSV"),
    ],
)
def test_a_broken_log_is_refused_by_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LogError) as refused:
        read_log(write(tmp_path, text))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_text_or_not_there_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    with pytest.raises(LogError, match="no such file"):
        read_log(log)
    log.write_bytes(b"t_s,a.position\n0,\xff\n")
    with pytest.raises(LogError, match="is not UTF-8"):
        read_log(log)
    with pytest.raises(LogError, match=r"kind '\.xlsx'"):
        read_log(tmp_path / "log.xlsx")


def test_a_megabyte_is_read_in_well_under_a_second(shared: Path) -> None:
    start = time.process_time()
    recording = read_log(shared / "data" / "so101" / "multisine.csv")
    assert time.process_time() - start < 1.0
    assert len(recording) == 6000
    assert recording.origin_ns == 5_000
    assert recording.channels["position"].shape == (6000, 6)
