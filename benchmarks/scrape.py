"""How long Prometheus' scrape of the monitor takes: all robots' metrics, read from a real Postgres and written as text.

    python -m benchmarks.scrape [--repeats 20]

An exporter on an empty database does everything but the robots; the ratio to it is what robots cost, whatever the
machine. CPU is of this process, without Postgres': what a busy machine doesn't change.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from urllib.request import Request, urlopen

import asyncpg
from prometheus_client import CollectorRegistry

from app.database.migrate import upgrade_async
from app.embedded.postgres import EmbeddedPostgres
from app.monitor.exporter import MAX_ROBOTS, serve

FLEETS = (0, 1_000, 10_000)
RECORDINGS_OF_A_ROBOT = 20
DEAD_LETTERS = 10_000
LIMIT_S = 0.2
"""Of a scrape with 1,000 live robots."""

# What Prometheus says that it would prefer.
AS_PROMETHEUS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}

FILL = (
    "INSERT INTO fleets (fleet) VALUES ('arms')",
    """INSERT INTO robots (robot, fleet, declaration)
       SELECT 'arm-' || i, 'arms', '{}' FROM generate_series(1, $1::int) i""",
    """INSERT INTO twin_versions (robot, version, document, digest, state)
       SELECT robot, v, '', 'sha256:' || v, CASE v WHEN 3 THEN 'active' ELSE 'retired' END
       FROM robots, generate_series(1, 3) v""",
    """INSERT INTO drift (robot, version, state, since, scored_at, telemetry_at, score, worst_score, worst_joint)
       SELECT robot, 3, 'ok', now(), now(), now(), random(), random() * 2, 'elbow' FROM robots""",
    """INSERT INTO connections (robot, state, stamp, received_at) SELECT robot, 'ONLINE', now(), now() FROM robots""",
    """INSERT INTO recordings (robot, boot_id, first_ns, last_ns, samples)
       SELECT robot, 'boot-' || b, t - 60000000000, t, 60000 FROM robots, generate_series(1, $1::int) b,
       LATERAL (SELECT ((extract(epoch FROM now()) - b * 60) * 1e9)::bigint AS t) AS at""",
    """INSERT INTO dead_letters (robot, topic, payload, payload_bytes, reason, detail, received_at, expires_at)
       SELECT 'arm-0', 'twincal/v1/arms/arm-0/telemetry/joints', decode(repeat('00', 500), 'hex'), 500,
       'reason_' || i % 10, 'refused', now(), now() + interval '7 days' FROM generate_series(1, $1::int) i""",
    "ANALYZE",
)


async def fill(url: str, robots: int) -> None:
    """Robots as in production: an active version, a score, days of recordings, and what was refused."""
    await upgrade_async(url)
    connection = await asyncpg.connect(url)
    numbers = iter((robots, RECORDINGS_OF_A_ROBOT, DEAD_LETTERS))
    for statement in FILL:
        if robots:
            await connection.execute(statement, *([next(numbers)] if "$1" in statement else []))
    await connection.close()


def measure(url: str, repeats: int) -> dict[str, float]:
    """Time and processor time of several scrapes [s], and what one answers."""
    served = serve("127.0.0.1", 0, url, registry=CollectorRegistry())
    request = Request(f"http://127.0.0.1:{served.port}/metrics", headers=AS_PROMETHEUS)
    took: list[float] = []
    cpu: list[float] = []
    try:
        for _ in range(repeats + 1):
            began, began_cpu = time.perf_counter(), time.process_time()
            with urlopen(request) as answer:
                text: bytes = answer.read()
            took.append(time.perf_counter() - began)
            cpu.append(time.process_time() - began_cpu)
    finally:
        served.close()
    # The first opens the connection, which later ones find open.
    return {
        "first_s": took[0],
        "best_s": min(took[1:]),
        "median_s": statistics.median(took[1:]),
        "worst_s": max(took[1:]),
        "cpu_s": statistics.median(cpu[1:]),
        "series": sum(1 for line in text.splitlines() if not line.startswith(b"#")),
        "bytes": len(text),
    }


async def create(server: EmbeddedPostgres, robots: int) -> str:
    """A database of its own for so many robots; its URL."""
    connection = await asyncpg.connect(server.url)
    name = f"robots_{robots}"
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    url = f"{server.url.rpartition('/')[0]}/{name}"
    await fill(url, robots)
    return url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with EmbeddedPostgres(Path(folder) / "postgres") as server:
            figures = {robots: measure(asyncio.run(create(server, robots)), repeats) for robots in FLEETS}
    empty = figures[0]["median_s"]
    print(" robots   best [ms]  median [ms]  worst [ms]  CPU [ms]  series      KB  × empty")
    for robots, figure in figures.items():
        figure["ratio"] = figure["median_s"] / empty
        print(
            f"{robots:>7} {1e3 * figure['best_s']:>11.1f} {1e3 * figure['median_s']:>12.1f} "
            f"{1e3 * figure['worst_s']:>11.1f} {1e3 * figure['cpu_s']:>9.1f} {figure['series']:>7.0f} "
            f"{figure['bytes'] / 1e3:>7.0f} {figure['ratio']:>8.1f}"
        )
    met = figures[1_000]["median_s"] < LIMIT_S
    print(f"1,000 live robots in under {LIMIT_S} s: {'yes' if met else 'NO'}; series are capped at {MAX_ROBOTS} robots")
    print(json.dumps({"benchmark": "scrape", "robots": {str(n): figure for n, figure in figures.items()}, "met": met}))


if __name__ == "__main__":
    main()
