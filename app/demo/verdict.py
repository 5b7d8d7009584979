"""What the calibrations found against what was hidden: numbers first, tables from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

CORE_KINDS: Final = (
    "coulomb_friction_nm",
    "viscous_damping_nm_s_per_rad",
    "armature_kg_m2",
    "command_latency_s",
)
"""What every robot of the demonstration must have identified, joint by joint."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fitted parameter and its truth, in the unit its name ends with.

    Attributes:
        name: as in the twin document.
        truth: as it was drawn.
        estimate: as it was found.
        interval90: as it was claimed.
        verdict: what the calibration says the data said.
    """

    name: str
    truth: float
    estimate: float
    interval90: tuple[float, float]
    verdict: str

    @property
    def kind(self) -> str:
        """The name's last part: the quantity with its unit."""
        return self.name.rsplit("/", 1)[-1]

    @property
    def holds(self) -> bool:
        """Whether the interval holds the truth."""
        return self.interval90[0] <= self.truth <= self.interval90[1]


@dataclass(frozen=True, slots=True)
class RobotOutcome:
    """How one robot's calibration ended.

    Attributes:
        robot: its id.
        accepted: whether the twin is served.
        reason: what the gate or the failure said.
        nominal_rmse_rad: hold-out error of the description, mean over joints; NaN without a twin.
        rmse_rad: hold-out error of the twin, mean over joints; NaN without a twin.
        findings: fitted parameters with a known truth.
    """

    robot: str
    accepted: bool
    reason: str
    nominal_rmse_rad: float = float("nan")
    rmse_rad: float = float("nan")
    findings: tuple[Finding, ...] = ()

    @property
    def improvement(self) -> float:
        """How many times smaller the hold-out error has become."""
        return self.nominal_rmse_rad / self.rmse_rad


def judge(robot: str, twin: Mapping[str, Any], truth: Mapping[str, float], reason: str) -> RobotOutcome:
    """Hold a served twin against the truth of its robot."""
    holdout = twin["quality"]["holdout"]
    findings = tuple(
        Finding(name, truth[name], entry["value"], (entry["interval90"][0], entry["interval90"][1]), entry["verdict"])
        for name, entry in sorted(twin["parameters"].items(), key=lambda item: _order(item[0], truth))
        if name in truth and entry["interval90"] is not None
    )
    return RobotOutcome(robot, True, reason, float(holdout["nominal_rmse_mean"]), float(holdout["rmse_mean"]), findings)


def _order(name: str, truth: Mapping[str, float]) -> int:
    names = list(truth)
    return names.index(name) if name in truth else len(names)


def parameter_table(outcome: RobotOutcome) -> Table:
    """Each fitted parameter's truth, estimate, interval and verdict."""
    title = (
        f"{outcome.robot}: hold-out error {1e3 * outcome.nominal_rmse_rad:.2f} mrad as described, "
        f"{1e3 * outcome.rmse_rad:.3f} mrad calibrated, {outcome.improvement:.0f} times smaller"
    )
    table = Table(title=title, title_justify="left", caption=outcome.reason, caption_justify="left")
    table.add_column("parameter", no_wrap=True)
    for heading in ("truth", "estimate", "90 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("holds", justify="center")
    for finding in outcome.findings:
        low, high = finding.interval90
        table.add_row(
            finding.name,
            _number(finding.truth),
            _number(finding.estimate),
            f"{_number(low)} … {_number(high)}",
            finding.verdict,
            "yes" if finding.holds else "[bold red]no",
        )
    return table


def robot_table(outcomes: Sequence[RobotOutcome]) -> Table:
    """One line a robot."""
    table = Table(title="Hold-out error of free runs, mean over joints", title_justify="left")
    table.add_column("robot", no_wrap=True)
    for heading in ("described [mrad]", "calibrated [mrad]", "times smaller", "intervals that hold"):
        table.add_column(heading, justify="right")
    table.add_column("served", justify="center")
    for outcome in outcomes:
        if not outcome.findings:
            table.add_row(outcome.robot, "", "", "", "", "[bold red]no")
            continue
        table.add_row(
            outcome.robot,
            f"{1e3 * outcome.nominal_rmse_rad:.2f}",
            f"{1e3 * outcome.rmse_rad:.3f}",
            f"{outcome.improvement:.0f}",
            _share(outcome.findings),
            "yes",
        )
    return table


def kind_table(outcomes: Sequence[RobotOutcome]) -> Table:
    """How honest the intervals are, per kind of parameter over all robots: never pooled into one figure."""
    table = Table(title="Of all robots, per kind of parameter", title_justify="left")
    table.add_column("kind", no_wrap=True)
    table.add_column("identified", justify="right")
    table.add_column("intervals that hold the truth", justify="right")
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    for kind in dict.fromkeys(finding.kind for finding in findings):
        of_kind = [finding for finding in findings if finding.kind == kind]
        identified = sum(finding.verdict == "identified" for finding in of_kind)
        table.add_row(kind, f"{identified} of {len(of_kind)}", _share(of_kind))
    return table


def summary(outcomes: Sequence[RobotOutcome]) -> str:
    """The demonstration in a line."""
    served = [outcome for outcome in outcomes if outcome.accepted]
    if not served:
        return f"none of {len(outcomes)} robots has a twin"
    core = [finding for outcome in served for finding in outcome.findings if finding.kind in CORE_KINDS]
    identified = sum(finding.verdict == "identified" for finding in core)
    factors = [outcome.improvement for outcome in served]
    return (
        f"{len(served)} of {len(outcomes)} robots calibrated; hold-out error {min(factors):.0f} to {max(factors):.0f} "
        f"times smaller; friction, damping, armature and latency: {identified} of {len(core)} identified, "
        f"90 % intervals hold the truth in {_share(core)}"
    )


def _share(findings: Iterable[Finding]) -> str:
    held = [finding.holds for finding in findings]
    return f"{sum(held)} of {len(held)} ({100.0 * sum(held) / len(held):.0f} %)" if held else "0 of 0"


def _number(value: float) -> str:
    return f"{value:.4g}"
