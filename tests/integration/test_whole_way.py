"""A real robot's logs through the database give the twin they give from files, bit for bit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncEngine
from typer.testing import CliRunner

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, FitResult
from app.cli import create_app
from app.database.engine import raw_connection
from app.database.tables import recordings
from app.database.telemetry import BatchOrigin, BatchRow, pack
from app.ingest.files import read_log
from app.ingest.replay import split
from app.telemetry import Recording
from app.twin.declaration import load_declaration
from app.twin.document import TwinDocument, read_document
from tests.integration.ingesting import eventually, ingesting, new_id
from tests.integration.serving import START_NS, client_of, ended, make_key, running_api, running_worker
from tests.system.commands import cut_csv

TRAIN = ("kp100_sin_sin.csv", "kp200_sin_time_square.csv")
HOLDOUT = ("kp100_up_and_down.csv",)


def from_files(folder: Path) -> FitResult:
    declaration, description = load_declaration(folder / "robot.yaml")
    train, holdout = (tuple(read_log(folder / name) for name in names) for names in (TRAIN, HOLDOUT))
    return calibrate(FitRequest(declaration, description, train, holdout, 0, 300.0, None), lambda _: None)


async def store(engine: AsyncEngine, robot: str, log: Recording, origin_ns: int) -> UUID:
    """As ingest stores a replayed log: in messages, moved in time."""
    rows = [
        pack(batch, BatchOrigin(robot, "joints", batch.stamp_ns + 10**7, log.name, seq))  # type: ignore[arg-type]
        for seq, batch in enumerate(split(log, 50, origin_ns))
    ]
    async with engine.begin() as connection:
        values: dict[str, Any] = {
            "robot": robot,
            "boot_id": log.name,
            "first_ns": min(row.first_ns for row in rows),
            "last_ns": max(row.last_ns for row in rows),
            "samples": sum(row.sample_count for row in rows),
        }
        stored: UUID = (
            await connection.execute(insert(recordings).values(**values).returning(recordings.c.id))
        ).scalar_one()
        raw = await raw_connection(connection)
        await raw.copy_records_to_table("telemetry_batches", records=rows, columns=BatchRow._fields)
    return stored


async def from_the_service(engine: AsyncEngine, folder: Path, api: httpx.AsyncClient) -> TwinDocument:
    declaration, description = load_declaration(folder / "robot.yaml")
    body = declaration.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"description"})
    robot = declaration.robot
    (await api.put(f"/v1/robots/{robot}", json=body)).raise_for_status()
    (await api.put(f"/v1/robots/{robot}/description", content=description.source)).raise_for_status()
    ids = [
        str(await store(engine, robot, read_log(folder / name), START_NS + i * 10**12))
        for i, name in enumerate((*TRAIN, *HOLDOUT))
    ]
    request = {"recordings": ids[: len(TRAIN)], "holdout": {"recordings": ids[len(TRAIN) :]}}
    job = (await api.post(f"/v1/robots/{robot}/calibrations", json=request)).raise_for_status().json()
    async with running_worker(engine):
        job = await ended(api, job["id"], deadline_s=200.0)
    assert job["state"] == "succeeded", job["reason"]
    report = await api.get(f"/v1/calibrations/{job['id']}/report")
    assert "<html" in report.text
    return read_document((await api.get(f"/v1/robots/{robot}/twins/{job['version']}")).content)


@pytest.mark.slow
async def test_the_database_gives_the_twin_that_files_give(engine: AsyncEngine, shared: Path) -> None:
    folder = shared / "data" / "xl330"
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        served = await from_the_service(engine, folder, api)
    direct = from_files(folder)
    assert served.provenance.dataset_digest == direct.draft.provenance.dataset_digest
    assert served.parameters == direct.draft.parameters
    assert served.covariance == direct.draft.covariance
    assert served.quality.holdout.rmse == direct.draft.quality.holdout.rmse


# --- over MQTT --------------------------------------------------------------------------------------------------------

SO101_TRAIN = ("multisine.csv", "chirp_sweep.csv")
SO101_HOLDOUT = ("random_waypoints.csv",)
SECONDS = 10.0


@pytest.fixture
def arm(shared: Path, tmp_path: Path) -> Path:
    """The first seconds of some of a real arm's logs, and its declaration under an id of the test's own."""
    source = shared / "data" / "so101"
    (tmp_path / "so101.urdf").write_bytes((source / "so101.urdf").read_bytes())
    declared = (source / "robot.yaml").read_text(encoding="utf-8")
    (tmp_path / "robot.yaml").write_text(declared.replace("robot: so101", f"robot: {new_id('so101')}"), "utf-8")
    for name in (*SO101_TRAIN, *SO101_HOLDOUT):
        cut_csv(source / name, tmp_path / name, SECONDS)
    return tmp_path


async def arrived(api: httpx.AsyncClient, robot: str, known: Sequence[str], rows: int) -> str:
    """The id of the one recording that isn't known yet, once all its samples are stored."""
    found: list[dict[str, Any]] = []

    async def is_whole() -> bool:
        items = (await api.get(f"/v1/robots/{robot}/recordings")).raise_for_status().json()["items"]
        found[:] = [item for item in items if item["id"] not in known]
        return [item["samples"] for item in found] == [rows]

    await eventually(is_whole, f"a recording of {rows} samples is stored")
    return str(found[0]["id"])


async def replayed(api: httpx.AsyncClient, robot: str, folder: Path, names: Sequence[str], mqtt_url: str) -> list[str]:
    """Ids of the recordings that logs become when they are published one after the other, as typed."""
    ids: list[str] = []
    for name in names:
        arguments = ("replay", "--robot", str(folder / "robot.yaml"), "--log", str(folder / name), "--speed", "max")
        environment = {"TWINCAL_MQTT_URL": mqtt_url}
        done = await asyncio.to_thread(CliRunner().invoke, create_app(), arguments, env=environment)
        assert done.exit_code == 0, done.output
        ids.append(await arrived(api, robot, ids, len(read_log(folder / name))))
    return ids


async def calibrated_over_mqtt(
    engine: AsyncEngine, database_url: str, mqtt_url: str, folder: Path, api: httpx.AsyncClient
) -> TwinDocument:
    declaration, description = load_declaration(folder / "robot.yaml")
    body = declaration.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"description"})
    robot = declaration.robot
    (await api.put(f"/v1/robots/{robot}", json=body)).raise_for_status()
    (await api.put(f"/v1/robots/{robot}/description", content=description.source)).raise_for_status()
    async with ingesting(database_url, mqtt_url):
        ids = await replayed(api, robot, folder, (*SO101_TRAIN, *SO101_HOLDOUT), mqtt_url)
    request = {"recordings": ids[: len(SO101_TRAIN)], "holdout": {"recordings": ids[len(SO101_TRAIN) :]}}
    job = (await api.post(f"/v1/robots/{robot}/calibrations", json=request)).raise_for_status().json()
    async with running_worker(engine):
        job = await ended(api, job["id"], deadline_s=250.0)
    assert job["state"] == "succeeded", job["reason"]
    return read_document((await api.get(f"/v1/robots/{robot}/twins/{job['version']}")).content)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_logs_replayed_over_mqtt_give_the_twin_that_files_give(
    engine: AsyncEngine, database_url: str, mqtt_url: str, arm: Path
) -> None:
    _, token = await make_key(engine)
    async with running_api(engine) as url, client_of(url, token) as api:
        served = await calibrated_over_mqtt(engine, database_url, mqtt_url, arm, api)
    declaration, description = load_declaration(arm / "robot.yaml")
    train, holdout = (tuple(read_log(arm / name) for name in names) for names in (SO101_TRAIN, SO101_HOLDOUT))
    request = FitRequest(declaration, description, train, holdout, 0, 300.0, None)
    direct = (await asyncio.to_thread(calibrate, request, lambda _: None)).draft
    assert served.provenance.dataset_digest == direct.provenance.dataset_digest
    assert served.parameters == direct.parameters
    assert served.covariance == direct.covariance
    assert served.sensors == direct.sensors
    assert served.quality.holdout.rmse == direct.quality.holdout.rmse
