"""`twincal api`, `worker`, `monitor` and `migrate`: one service each."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.addresses import any_mqtt_url, database_url
from app.errors import InvalidInputError

if TYPE_CHECKING:
    from app.monitor.service import MonitorOptions


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("api")(api)
    app.command("worker")(worker)
    app.command("monitor")(monitor)
    app.command("migrate")(migrate)


def api(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
    insecure_local: Annotated[
        bool, typer.Option("--insecure-local", help="Answer without a key; on a loopback address only.")
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve Prometheus metrics here too, without a key.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address the metrics listen on.")] = "127.0.0.1",
) -> None:
    """Serve the REST interface."""
    import uvicorn

    from app.api.app import create_app
    from app.api.context import ApiOptions
    from app.cli.logs import log_to_standard_error
    from app.database.engine import create_engine

    if insecure_local and not _is_loopback(host):
        raise InvalidInputError("--insecure-local", f"{host} can be reached from other machines", "--host 127.0.0.1")
    log_to_standard_error()
    app = create_app(create_engine(database_url()), ApiOptions(insecure_local))
    if metrics_port is not None:
        _serve_metrics(metrics_host, metrics_port)
    # Streams that never end (events) would hold up a shutdown for ever.
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )


def worker(
    heartbeat_timeout_s: Annotated[
        float, typer.Option(min=2.0, help="A job whose worker was silent for so long is taken over.")
    ] = 30.0,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Serve Prometheus metrics here; none without it.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address the metrics listen on.")] = "127.0.0.1",
) -> None:
    """Run calibrations, one after another; start as many workers as there are machines."""
    from app.cli.logs import log_to_standard_error

    log_to_standard_error()
    asyncio.run(
        _work(database_url(), heartbeat_timeout_s, None if metrics_port is None else (metrics_host, metrics_port))
    )


def monitor(
    interval_s: Annotated[float, typer.Option(min=0.1, max=3600.0, help="How often each robot is looked at.")] = 10.0,
    history_s: Annotated[
        float, typer.Option(min=0.0, max=86400.0, help="At most so often a robot's history gets a point.")
    ] = 60.0,
    keep_days: Annotated[int, typer.Option(min=1, max=3650, help="For how long the history is kept.")] = 90,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Serve Prometheus metrics of this process and of all robots here."),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address the metrics listen on.")] = "127.0.0.1",
) -> None:
    """Watch how well live robots still fit their active twins.

    One monitor is at work at a time; another stands by and takes over when it ends. Without a broker nobody is told.
    """
    from app.cli.logs import log_to_standard_error
    from app.ingest.broker import BrokerAddress
    from app.monitor.service import MonitorOptions

    log_to_standard_error()
    url, broker = database_url(), any_mqtt_url()
    address = None if broker is None else BrokerAddress.parse(broker)
    options = MonitorOptions(interval_s, history_s, keep_days, address)
    asyncio.run(_watch(url, options, None if metrics_port is None else (metrics_host, metrics_port)))


def migrate() -> None:
    """Bring the database to the newest schema; several at once are safe."""
    from app.database.migrate import upgrade

    upgrade(database_url())


async def _watch(url: str, options: MonitorOptions, metrics: tuple[str, int] | None) -> None:
    from app.database.engine import create_engine
    from app.monitor.exporter import serve
    from app.monitor.service import POOL_SIZE, Monitor

    stop = _stop_on_signals()
    served = None if metrics is None else serve(*metrics, url)
    # A look that meets a dead connection is made again in the next pass: not worth three round trips of every one.
    engine = create_engine(url, pool_size=POOL_SIZE, pre_ping=False)
    try:
        await Monitor(engine, options).run(stop)
    finally:
        await engine.dispose()
        if served is not None:
            served.close()


async def _work(url: str, heartbeat_timeout_s: float, metrics: tuple[str, int] | None) -> None:
    from app.calibration.worker import Worker
    from app.database.engine import create_engine

    stop = _stop_on_signals()
    if metrics is not None:
        _serve_metrics(*metrics)
    engine = create_engine(url)
    try:
        await Worker(engine, heartbeat_timeout_s).run(stop)
    finally:
        await engine.dispose()


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _serve_metrics(host: str, port: int) -> None:
    from prometheus_client import start_http_server

    try:
        start_http_server(port, addr=host)
    except OSError as error:
        raise InvalidInputError("--metrics-port", f"can't listen on {host}:{port}: {error.strerror}") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_GRACE_S = 10
