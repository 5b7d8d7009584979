"""One word for a twin: good, fair or poor, by what the hold-out says and by what the twin leaves over.

A tight posterior around a wrong value is no good twin: what is left over must be small beside the motion, and must not
look like something the model lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.calibration.findings import Finding
from app.calibration.types import Acceptance
from app.twin.document import Grade

FAIR_IMPROVEMENT: Final = 1.5
GOOD_IMPROVEMENT: Final = 3.0
"""Nominal over calibrated error."""
GOOD_GENERALISATION: Final = 2.0
"""Hold-out over training error up to which a fit is good."""
FAIR_SHARE: Final = 0.3
GOOD_SHARE: Final = 0.1
"""Error over motion, means over the joints."""
GRAVE: Final = 0.05
"""Share of a joint's motion that a finding may explain before the twin is poor."""


def grade(
    acceptance: Acceptance,
    improvement: float | None,
    generalisation: float,
    share: float,
    findings: Sequence[Finding],
) -> Grade:
    """Grade a twin.

    Args:
        acceptance: the gate's answer.
        improvement: nominal over calibrated error on the hold-out; None where the latter is 0.
        generalisation: error on the hold-out over that on the training data.
        share: error over motion on the hold-out.
        findings: what the twin lacks.
    """
    gain = float("inf") if improvement is None else improvement
    grave = any(finding.effect > GRAVE for finding in findings)
    if not acceptance.accepted or gain < FAIR_IMPROVEMENT or share > FAIR_SHARE or grave:
        return "poor"
    good = gain >= GOOD_IMPROVEMENT and generalisation <= GOOD_GENERALISATION and share <= GOOD_SHARE
    return "good" if good and not findings else "fair"
