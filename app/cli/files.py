"""`twincal fit` and `twincal evaluate`: one robot, from files, no server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.errors import FitImpossibleError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.calibration.types import FitResult, Progress
    from app.telemetry import Recording
    from app.twin.document import TwinDocument

NO_FIT: Final = 3
"""Exit code when the data allow no fit; the report says why."""

_Robot = Annotated[Path, typer.Option(help="The robot's declaration (twincal.robot/1), YAML or JSON.")]
_FromS = Annotated[float | None, typer.Option("--from-s", min=0.0, help="Seconds after a log's first row to begin at.")]
_ToS = Annotated[float | None, typer.Option("--to-s", min=0.0, help="Seconds after a log's first row to end at.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the quality block as the last line of standard output.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("fit")(fit)
    app.command("evaluate")(evaluate)


def fit(
    robot: _Robot,
    log: Annotated[list[Path], typer.Option(help="A log to fit (CSV, JSON lines); repeatable.")],
    holdout_log: Annotated[
        list[Path] | None,
        typer.Option(help="A log that only judges the fit; repeatable. Without one, the end of each log is held out."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the twin document goes.")] = Path("twin.json"),
    report: Annotated[Path, typer.Option(help="Where the HTML report goes.")] = Path("report.html"),
    from_s: _FromS = None,
    to_s: _ToS = None,
    seed: Annotated[int, typer.Option(min=0, help="Of every random draw.")] = 0,
    budget_s: Annotated[float, typer.Option(min=1.0, help="Safety limit on the fit's wall time [s].")] = 900.0,
    json: _Json = False,
) -> None:
    """Calibrate a robot's twin from logs: writes the twin and a report.

    Exits 0 with both written, also when the grade is poor; 2 on bad input; 3 when the data allow no fit (report only).
    """
    from app.calibration.fit import calibrate
    from app.calibration.types import FitRequest
    from app.twin.declaration import load_declaration

    _check_span(from_s, to_s)
    declaration, description = load_declaration(robot)
    request = FitRequest(
        declaration=declaration,
        description=description,
        train=_read(log),
        holdout=_read(holdout_log or []),
        seed=seed,
        budget_s=budget_s,
        active=None,
        from_s=from_s,
        to_s=to_s,
    )
    for path in (out, report):
        _check_writable(path)
    try:
        with _progress() as told:
            result = calibrate(request, told)
    except FitImpossibleError as error:
        report.write_text(error.report_html, encoding="utf-8")
        typer.echo(f"twincal: {error} (see {report})", err=True)
        raise typer.Exit(NO_FIT) from error
    document = _sealed(result)
    _write(document, out)
    report.write_text(result.report_html, encoding="utf-8")
    _say(result, document, out, report)
    if json:
        _print_json(document.quality.model_dump(mode="json"))


def evaluate(
    robot: _Robot,
    twin: Annotated[Path, typer.Option(help="A twin document (twincal.twin/1).")],
    log: Annotated[list[Path], typer.Option(help="A log to judge by (CSV, JSON lines); repeatable.")],
    from_s: _FromS = None,
    to_s: _ToS = None,
    window_s: Annotated[
        float | None, typer.Option(min=0.01, help="Judge short runs of this length instead of free runs [s].")
    ] = None,
    json: _Json = False,
) -> None:
    """Judge a twin on logs: errors of free runs, or of windows, in PyBullet."""
    from app.calibration.evaluate import evaluate_twin
    from app.twin.declaration import load_declaration
    from app.twin.document import read_document

    _check_span(from_s, to_s)
    declaration, description = load_declaration(robot)
    document = read_document(_bytes_of(twin))
    holdout = evaluate_twin(document, declaration, description, _read(log), (from_s, to_s), window_s)
    for name in holdout.mae:
        typer.echo(f"{name:24} MAE {_milli(holdout.mae[name])}  RMSE {_milli(holdout.rmse[name])}")
    for row in holdout.per_log:
        typer.echo(f"{row.log:24} MAE {_milli(row.mae_mean)}  RMSE {_milli(row.rmse_mean)}")
    typer.echo(f"{'mean over joints':24} MAE {_milli(holdout.mae_mean)}  RMSE {_milli(holdout.rmse_mean)}")
    if json:
        _print_json({"holdout": holdout.model_dump(mode="json")})


def _read(paths: Sequence[Path]) -> tuple[Recording, ...]:
    from app.ingest.files import read_log

    return tuple(read_log(path) for path in paths)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(str(path), error.strerror or "can't be read") from error


def _check_span(from_s: float | None, to_s: float | None) -> None:
    if from_s is not None and to_s is not None and to_s <= from_s:
        raise InvalidInputError("--to-s", f"{to_s} is not after --from-s {from_s}")


def _check_writable(path: Path) -> None:
    if not path.parent.is_dir():
        raise InvalidInputError(str(path), "its folder does not exist")
    if path.is_dir():
        raise InvalidInputError(str(path), "is a folder", "a file name")


def _sealed(result: FitResult) -> TwinDocument:
    from datetime import UTC, datetime

    from app.twin.document import FILE_VERSION, seal

    return seal(result.draft, version=FILE_VERSION, parent=None, created_at=datetime.now(UTC))


def _write(document: TwinDocument, path: Path) -> None:
    from app.twin.document import to_json

    path.write_bytes(to_json(document) + b"\n")


def _say(result: FitResult, document: TwinDocument, out: Path, report: Path) -> None:
    quality = document.quality
    holdout = quality.holdout
    gain = "" if quality.improvement is None else f", {quality.improvement:.1f} times better than nominal"
    for warning in quality.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(
        f"grade {quality.grade}: hold-out MAE {_milli(holdout.mae_mean)}, RMSE {_milli(holdout.rmse_mean)}{gain}"
    )
    typer.echo(("accepted: " if result.acceptance.accepted else "not accepted: ") + result.acceptance.reason)
    for gauge in quality.gauges:
        typer.echo(f"gauge {gauge.name}: {gauge.text}")
    verdicts = [parameter.verdict for parameter in document.parameters.values() if parameter.verdict is not None]
    counted = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(sorted(verdicts)))
    typer.echo(f"parameters: {counted}")
    typer.echo(f"written: {out}, {report}")


def _milli(value: float) -> str:
    return f"{1e3 * value:8.3f} mrad"


def _print_json(block: object) -> None:
    import orjson

    typer.echo(orjson.dumps(block).decode())


def _progress() -> _Bar:
    return _Bar()


class _Bar:
    """A progress bar on a terminal; one line a stage elsewhere; both on standard error."""

    def __init__(self) -> None:
        self._stage = ""

    def __enter__(self) -> Callable[[Progress], None]:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        self._rich = RichProgress(
            TextColumn("{task.description:20}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[trials]} trials"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._rich.start()
        self._task = self._rich.add_task("reading data", total=1.0, trials=0)
        return self._told

    def _told(self, progress: Progress) -> None:
        self._rich.update(self._task, description=progress.stage, completed=progress.fraction, trials=progress.trials)
        if self._rich.disable and progress.stage != self._stage:
            sys.stderr.write(f"{progress.stage}\n")
        self._stage = progress.stage

    def __exit__(self, *_: object) -> None:
        self._rich.stop()
