"""The same scenarios whichever file they come in, written piece by piece, with where they come from."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from app.errors import InvalidInputError
from app.scenario import formats
from app.scenario.formats import METADATA_KEY
from app.scenario.generate import CHUNK
from app.scenario.records import Origin
from app.scenario.request import Format
from tests.scenarios import LATENCY, arm, choice_of, chunk_records, joint, origin_of

OVERLAYS: list[dict[str, Any]] = [
    {"kind": "payload", "link": "elbow_link", "mass_kg": {"uniform": [0.5, 2.0]}},
    {"kind": "latency", "jitter_s": {"uniform": [0.0, 0.002]}, "drop": 0.05},
]


def origin(n: int = 100, **asked: Any) -> Origin:
    return origin_of(choice_of(n=n, overlays=OVERLAYS, **asked), arm())


def written(source: Origin, file_format: Format) -> bytes:
    return b"".join(formats.write(source, file_format))


def read_table(source: Origin) -> pa.Table:
    return parquet.read_table(pa.BufferReader(written(source, "parquet")))


def test_json_holds_the_scenarios_and_where_they_come_from() -> None:
    document = json.loads(written(origin(), "json"))
    assert document["scenarios"] == chunk_records(origin())
    assert (document["schema"], document["seed"], document["n"]) == ("twincal.scenario/1", 7, 100)
    (twin,) = document["twins"]
    assert (twin["robot"], twin["version"], twin["digest"]) == ("arm-07", 7, arm().digest)
    assert twin["timestep_s"] == 0.001
    assert twin["holdout"] == {"mae_mean": 0.0021, "rmse_mean": 0.0021}
    unknown = [name for name, one in arm().parameters.items() if one.verdict in {"not_identified", "no_effect"}]
    assert twin["not_identified"] == unknown
    assert len(unknown) == 6


def test_each_line_of_ndjson_is_a_scenario_that_says_where_it_comes_from() -> None:
    lines = written(origin(), "ndjson").splitlines()
    scenarios = [json.loads(line) for line in lines]
    assert {scenario["provenance"]["digest"] for scenario in scenarios} == {arm().digest}
    for scenario in scenarios:
        del scenario["provenance"]
    assert scenarios == chunk_records(origin())


@pytest.mark.parametrize("first", [0, CHUNK - 10, 123_456])
def test_a_line_is_the_same_bytes_whatever_it_was_asked_for_with(first: int) -> None:
    whole = written(origin(n=first % CHUNK + 50, first=first - first % CHUNK), "ndjson").splitlines()
    assert written(origin(n=20, first=first), "ndjson").splitlines() == whole[first % CHUNK : first % CHUNK + 20]


def test_parquet_has_a_column_a_number_and_the_provenance_in_its_metadata() -> None:
    table = read_table(origin())
    scenarios = chunk_records(origin())
    assert table["index"].to_pylist() == list(range(100))
    assert set(table["robot"].to_pylist()) == {"arm-07"}
    assert set(table["version"].to_pylist()) == {7}
    for name in arm().parameters:
        assert table[name].to_pylist() == [s["parameters"][name] for s in scenarios]
    assert table["episode/latency_s"].to_pylist() == [s["episode"]["latency_s"] for s in scenarios]
    assert table["episode/seed"].to_pylist() == [s["episode"]["seed"] for s in scenarios]
    assert table["overlay/0/payload/mass_kg"].to_pylist() == [s["overlays"][0]["mass_kg"] for s in scenarios]
    assert table["overlay/1/latency/jitter_s"].to_pylist() == [s["overlays"][1]["jitter_s"] for s in scenarios]
    assert json.loads(table.schema.metadata[METADATA_KEY]) == origin().provenance()


def test_npz_holds_the_same_numbers_as_parquet() -> None:
    archive = np.load(io.BytesIO(written(origin(n=CHUNK + 5), "npz")), allow_pickle=False)
    table = read_table(origin(n=CHUNK + 5))
    columns = archive["columns"].tolist()
    assert columns == [name for name in table.column_names if name not in {"index", "robot", "version", "episode/seed"}]
    assert archive["values"].shape == (CHUNK + 5, len(columns))
    for i, name in enumerate(columns):
        assert archive["values"][:, i].tobytes() == table[name].to_numpy().tobytes()
    assert archive["index"].tolist() == table["index"].to_pylist()
    assert archive["episode_seed"].tolist() == table["episode/seed"].to_pylist()
    assert set(archive["robots"][archive["robot"]].tolist()) == {"arm-07"}
    assert json.loads(str(archive["provenance"])) == origin(n=CHUNK + 5).provenance()


def test_the_same_request_is_the_same_file_to_the_last_byte() -> None:
    for file_format in formats.MEDIA_TYPES:
        assert written(origin(), file_format) == written(origin(), file_format)


def test_nothing_is_kept_of_a_file_but_the_piece_being_written() -> None:
    for file_format in formats.MEDIA_TYPES:
        pieces = [len(piece) for piece in formats.write(origin(n=2 * CHUNK), file_format)]
        assert max(pieces) < 0.6 * sum(pieces)


def test_a_fleet_of_one_kind_fits_a_table_in_order() -> None:
    twins = [arm(robot=f"arm-{i}", seed=i) for i in range(3)]
    source = origin_of(choice_of(n=500), *twins, fleet="arms")
    table, scenarios = read_table(source), chunk_records(source)
    assert table["index"].to_pylist() == list(range(500))
    assert table["robot"].to_pylist() == [s["keys"]["robot"] for s in scenarios]
    assert table[LATENCY].to_pylist() == [s["parameters"][LATENCY] for s in scenarios]
    assert table["episode/seed"].to_pylist() == [s["episode"]["seed"] for s in scenarios]
    assert len(set(table["robot"].to_pylist())) == 3


def test_a_fleet_of_different_robots_is_refused_a_table_before_the_first_byte() -> None:
    mixed = origin_of(choice_of(), arm(robot="arm-1"), arm(["hip"], robot="leg-1"), fleet="zoo")
    for file_format in ("npz", "parquet"):
        with pytest.raises(InvalidInputError, match="leg-1") as raised:
            formats.write(mixed, file_format)
        assert raised.value.where == "format"
    kinds = {tuple(s["parameters"]) for s in chunk_records(mixed)}
    assert len(kinds) == 2
    assert joint("hip", "armature_kg_m2") in set().union(*kinds)
