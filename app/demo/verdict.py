"""What the calibrations found against what was hidden, in numbers; `app.demo.tables` shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

CORE_KINDS: Final = (
    "coulomb_friction_nm",
    "viscous_damping_nm_s_per_rad",
    "armature_kg_m2",
    "command_latency_s",
)
"""What every robot of the demonstration must have identified, joint by joint."""
FRICTION_KINDS: Final = CORE_KINDS[:2]
"""What rises in a robot that wears."""


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
    def is_core(self) -> bool:
        """Whether every robot of the demonstration must have identified it."""
        return self.kind in CORE_KINDS

    @property
    def is_friction(self) -> bool:
        """Whether it is a friction, dry or viscous."""
        return self.kind in FRICTION_KINDS

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


@dataclass(frozen=True, slots=True)
class Contrast:
    """One parameter as it was found on each robot.

    Attributes:
        name: as in the twin documents.
        findings: by robot.
    """

    name: str
    findings: Mapping[str, Finding]

    @property
    def is_apart(self) -> bool:
        """Whether no two robots' intervals overlap: the answers themselves say that the robots differ."""
        intervals = sorted(finding.interval90 for finding in self.findings.values())
        return all(lower[1] < upper[0] for lower, upper in pairwise(intervals))


def contrasts(outcomes: Iterable[RobotOutcome]) -> tuple[Contrast, ...]:
    """The core parameters of all robots with a twin, side by side."""
    by_name: dict[str, dict[str, Finding]] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            if finding.is_core:
                by_name.setdefault(finding.name, {})[outcome.robot] = finding
    return tuple(Contrast(name, findings) for name, findings in by_name.items())


def share_that_holds(findings: Iterable[Finding]) -> str:
    """In how many of these the interval holds the truth, for people."""
    held = [finding.holds for finding in findings]
    return f"{sum(held)} of {len(held)} ({100.0 * sum(held) / len(held):.0f} %)" if held else "0 of 0"


def summary(outcomes: Sequence[RobotOutcome]) -> tuple[str, ...]:
    """The demonstration in a few lines."""
    served = [outcome for outcome in outcomes if outcome.accepted]
    if not served:
        return (f"none of {len(outcomes)} robots has a twin",)
    findings = [finding for outcome in served for finding in outcome.findings]
    core = [finding for finding in findings if finding.is_core]
    identified = [finding for finding in core if finding.verdict == "identified"]
    factors = ", ".join(f"{outcome.robot} {outcome.improvement:.0f}" for outcome in served)
    found = contrasts(served)
    apart = sum(contrast.is_apart for contrast in found)
    return (
        f"{len(served)} of {len(outcomes)} robots calibrated; hold-out error smaller by a factor of: {factors}",
        f"friction, damping, armature and latency: {len(identified)} of {len(core)} identified",
        f"their 90 % intervals hold the truth in {share_that_holds(identified)}",
        f"the intervals of all fitted parameters do in {share_that_holds(findings)}",
        f"the robots differ: for {apart} of {len(found)} frictions, dampings, armatures and the latency no two overlap",
    )
