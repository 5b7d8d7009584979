"""The demonstration's results as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from app.demo.verdict import Finding, RobotOutcome, contrasts, share_that_holds
from app.demo.wear import EXPECTED, WearOutcome


def parameter_table(outcome: RobotOutcome) -> Table:
    """Each fitted parameter's truth, estimate, interval and verdict."""
    title = (
        f"{outcome.robot}: hold-out error {1e3 * outcome.nominal_rmse_rad:.2f} mrad as described, "
        f"{1e3 * outcome.rmse_rad:.3f} mrad calibrated, {outcome.improvement:.0f} times smaller"
    )
    table = _table(title, caption=outcome.reason)
    table.add_column("parameter", overflow="fold")
    for heading in ("truth", "estimate", "90 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("holds", justify="center", no_wrap=True)
    group = ""
    for finding in outcome.findings:
        if (part := finding.name.rpartition("/")[0]) != group:
            table.add_section()
            group = part
        low, high = finding.interval90
        table.add_row(
            finding.name,
            _number(finding.truth, finding),
            _number(finding.estimate, finding),
            f"{_number(low, finding)} … {_number(high, finding)}",
            finding.verdict if finding.verdict == "identified" else f"[dim]{finding.verdict}",
            "yes" if finding.holds else "[bold red]no",
        )
    return table


def robot_table(outcomes: Sequence[RobotOutcome]) -> Table:
    """One line a robot."""
    table = _table("Hold-out error of free runs, mean over joints")
    table.add_column("robot", no_wrap=True)
    for heading in ("described [mrad]", "calibrated [mrad]", "times smaller", "intervals that hold"):
        table.add_column(heading, justify="right")
    table.add_column("served", justify="center")
    for outcome in outcomes:
        if not outcome.accepted:
            table.add_row(outcome.robot, "", "", "", "", "[bold red]no")
            continue
        table.add_row(
            outcome.robot,
            f"{1e3 * outcome.nominal_rmse_rad:.2f}",
            f"{1e3 * outcome.rmse_rad:.3f}",
            f"{outcome.improvement:.0f}",
            share_that_holds(outcome.findings),
            "yes",
        )
    return table


def contrast_table(outcomes: Sequence[RobotOutcome]) -> Table:
    """The same parameter on every robot: estimate and half the 90 % interval."""
    table = _table("Same model, different robots: estimates")
    table.add_column("parameter", overflow="fold")
    served = [outcome for outcome in outcomes if outcome.accepted]
    for outcome in served:
        table.add_column(outcome.robot, justify="right", no_wrap=True)
    table.add_column("apart", justify="center", no_wrap=True)
    for contrast in contrasts(served):
        found = (contrast.findings.get(outcome.robot) for outcome in served)
        cells = (
            "" if f is None else f"{_number(f.estimate, f, 1)} [dim]± {_number(_half_width(f), f, 1)}[/]" for f in found
        )
        table.add_row(contrast.name, *cells, "yes" if contrast.is_apart else "no")
    return table


def kind_table(outcomes: Sequence[RobotOutcome]) -> Table:
    """How honest the intervals are, per kind of parameter over all robots."""
    table = _table("Of all robots, per kind of parameter")
    table.add_column("kind", no_wrap=True)
    table.add_column("identified", justify="right")
    table.add_column("intervals that hold the truth", justify="right")
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    for kind in dict.fromkeys(finding.kind for finding in findings):
        of_kind = [finding for finding in findings if finding.kind == kind]
        identified = sum(finding.verdict == "identified" for finding in of_kind)
        table.add_row(kind, f"{identified} of {len(of_kind)}", share_that_holds(of_kind))
    return table


def drift_table(outcome: WearOutcome) -> Table:
    """Each robot's score before one of them wore, at its highest, and now."""
    table = _table("Drift scores: 1 is as close to the twin as on the hold-out")
    table.add_column("robot", no_wrap=True)
    for heading in ("before", "highest", "now"):
        table.add_column(heading, justify="right")
    table.add_column("twin", no_wrap=True)
    table.add_column("called drifted", justify="center")
    table.add_column("calibrations raised", justify="right")
    for drift in outcome.drifts:
        first, last = drift.versions
        table.add_row(
            drift.robot,
            *("" if score is None else f"{score:.2f}" for score in (drift.before, drift.highest, drift.after)),
            f"v{first}" if first == last else f"v{first} → v{last}",
            "[bold red]yes" if drift.drifted else "no",
            str(drift.raised),
        )
    return table


def friction_table(outcome: WearOutcome) -> Table:
    """The worn robot's frictions: what the first version said, what became true, what the new version says."""
    table = _table(f"{outcome.robot}: frictions before and after")
    table.add_column("parameter", overflow="fold")
    for heading in ("first version", "truth now", "new version", "90 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("holds", justify="center", no_wrap=True)
    for before, now in outcome.frictions:
        low, high = now.interval90
        table.add_row(
            now.name,
            "" if before is None else _number(before.estimate, before),
            _number(now.truth, now),
            _number(now.estimate, now),
            f"{_number(low, now)} … {_number(high, now)}",
            "yes" if now.holds else "[bold red]no",
        )
    return table


def step_table(outcome: WearOutcome) -> Table:
    """When what happened, from the rise of the friction on."""
    table = _table(f"{outcome.robot}: seconds from the rise of its friction")
    table.show_header = False
    for step, seconds in outcome.seconds.items():
        table.add_row(f"until {EXPECTED[step]}", f"{seconds:.1f}")
    return table


def trail_table(outcome: WearOutcome) -> Table:
    """The audit trail: who moved which version, and why."""
    table = _table(f"{outcome.robot}: audit trail")
    for heading in ("who", "what", "version"):
        table.add_column(heading, no_wrap=True)
    table.add_column("why", overflow="fold")
    for entry in outcome.trail:
        moved = " → ".join(f"v{version}" for version in (entry["old"], entry["new"]) if version is not None)
        table.add_row(escape(entry["who"]), entry["what"], moved, escape(entry["reason"]))
    return table


def _table(title: str, caption: str | None = None) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        collapse_padding=True,
    )


def _half_width(finding: Finding) -> float:
    return 0.5 * (finding.interval90[1] - finding.interval90[0])


def _number(value: float, finding: Finding, digits: int = 2) -> str:
    """With as many decimals as mean something: half the interval has so many digits. So a miss can be seen as one."""
    half = _half_width(finding)
    decimals = digits - 1 - math.floor(math.log10(half)) if half > 0.0 else 6
    return f"{value:.{min(max(decimals, 0), 9)}f}"
