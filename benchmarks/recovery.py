"""Is a planted truth found: `python -m benchmarks.recovery [--robots N] [--seed S]`.

A seven-joint arm played by MuJoCo (`_planted_arm`): gains declared, centres of mass and inertia-to-mass ratios known,
60 s at 200 Hz, 0.1 mrad of noise, 14-bit encoders, latency 12 ms. The whole fit, from the log alone; judged on another
motion of 20 s. Prints a table and, as its last line, JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, FitResult, Progress
from app.demo.motion import Commands
from app.demo.reality import STEP_NS, simulate
from app.demo.truth import PERFECT_ENCODER, Encoder, Truth
from app.twin.description import Description
from benchmarks._planted_arm import GAINS, LINKS, arm, declaration, draw, known_shape, motion

NOISE_RAD = 1e-4
STEP_RAD = 2.0 * math.pi / 2**14
ENCODER = Encoder(NOISE_RAD, STEP_RAD, 20.0 * NOISE_RAD, 20.0 * STEP_RAD)
FLOOR_RAD = math.sqrt(NOISE_RAD**2 + STEP_RAD**2 / 12.0)
LATENCY_S = 0.012
FIT_S, JUDGED_S, HELD_S = 60.0, 20.0, 20.0

WITHIN = {"coulomb_friction": 0.05, "viscous_damping": 0.10, "armature": 0.05, "mass": 0.05}
LATENCY_WITHIN_S = 0.001
UNSEEN = (f"link/{LINKS[0]}/mass_kg", f"joint/{next(iter(GAINS))}/encoder_offset_rad")
"""What no motion shows: link 1 turns about a vertical axis, its mass adds to the armature of joint 1, and the zero of
joint 1 is felt by nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """One parameter of one robot.

    Attributes:
        name: in the twin's document.
        kind: of parameter, see `WITHIN`; `latency`; or `offset`.
        truth: planted.
        value: fitted.
        verdict: the fit's.
        wanted: whether it is among those that have to be identified.
    """

    name: str
    kind: str
    truth: float
    value: float
    verdict: str | None
    wanted: bool

    @property
    def error(self) -> float:
        """Relative; absolute where the truth may be 0."""
        difference = abs(self.value - self.truth)
        return difference if self.kind in ("latency", "offset") else difference / self.truth

    @property
    def near(self) -> bool:
        """Whether it is as near to the truth as it should be."""
        return self.error <= {"latency": LATENCY_WITHIN_S, "offset": 0.001, **WITHIN}[self.kind]

    @property
    def false(self) -> bool:
        """Whether it is called identified and can't be, or is far from its truth."""
        return self.verdict == "identified" and (self.name in UNSEEN or not self.near)


def kind_of(name: str) -> str:
    """The kind a parameter is reported under."""
    last = name.rsplit("/", 1)[1]
    if last == "command_latency_s":
        return "latency"
    return "offset" if last.startswith("encoder_offset") else next(kind for kind in WITHIN if last.startswith(kind))


def reality_s_own_error(description: Description, truth: Truth, commands: Commands) -> tuple[float, float]:
    """What reality's finite step and its soft friction leave: largest difference to half the step, and creep.

    Returns:
        Largest difference between a run and one with half the step [rad]; the fastest joint's drift while every command
        stands still, in the last two of eight seconds [rad/s].
    """
    clean = replace(truth, encoder=PERFECT_ENCODER)
    coarse, fine = (
        simulate(description, GAINS, clean, commands, step_ns=step_ns).channels["position"]
        for step_ns in (STEP_NS, STEP_NS // 2)
    )
    rows = round(8.0 / 0.005)
    t_ns = commands.t_ns[:rows].copy()
    standing = Commands(t_ns, commands.names, np.repeat(commands.position[2000:2001], rows, axis=0))
    rest = simulate(description, GAINS, clean, standing).channels["position"]
    return float(np.abs(coarse - fine).max()), float(np.abs(rest[-1] - rest[-401]).max() / 2.0)


def fit(description: Description, truth: Truth, seed: int) -> FitResult:
    """The twin of one arm's log."""
    train = simulate(description, GAINS, truth, motion(description, seed, FIT_S), name="fitted")
    again = replace(truth, noise_seed=truth.noise_seed + 1000)
    held = simulate(description, GAINS, again, motion(description, 500 + seed, HELD_S), name="judged")
    declared = declaration(frozen=known_shape(description))
    return calibrate(FitRequest(declared, description, (train,), (held,), 0, 3600.0, None), _ignore)


def found(result: FitResult, planted: Mapping[str, float]) -> list[Found]:
    """What became of every fitted parameter with a truth."""
    rows = []
    for name, parameter in result.draft.parameters.items():
        if parameter.verdict is None or name not in planted:
            continue
        kind = kind_of(name)
        wanted = kind != "offset" and name not in {f"link/{link}/mass_kg" for link in LINKS[:2]}
        rows.append(Found(name, kind, planted[name], parameter.value, parameter.verdict, wanted))
    return rows


def _ignore(_: Progress) -> None:
    """A benchmark prints its table alone."""


def show(rows: list[Found]) -> None:
    """Print one robot's parameters."""
    print(f"{'parameter':52} {'truth':>10} {'fitted':>10} {'error':>9}  verdict")
    for row in rows:
        relative = row.kind not in ("latency", "offset")
        error = f"{100.0 * row.error:7.2f} %" if relative else f"{1e3 * row.error:6.3f} m"
        missed = row.wanted and not (row.near and row.verdict == "identified")
        note = " FALSE" if row.false else " MISSED" if missed else ""
        print(f"{row.name:52} {row.truth:10.5g} {row.value:10.5g} {error:>9}  {row.verdict}{note}")


def main() -> None:
    """Fit so many arms and say what of their truth was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--robots", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    description = arm()
    every: list[Found] = []
    for seed in range(asked.seed, asked.seed + asked.robots):
        truth = draw(description, seed, latency_s=LATENCY_S, encoder=ENCODER)
        own, creep = reality_s_own_error(description, truth, motion(description, seed, JUDGED_S))
        print(
            f"robot {seed}: MuJoCo in steps of {STEP_NS / 1e6} ms, off by {1e3 * own:.4f} mrad; creep {creep:.1e} rad/s"
        )
        began = time.monotonic()
        result = fit(description, truth, seed)
        rows = found(result, truth.parameters(description))
        every += rows
        show(rows)
        quality = result.draft.quality
        held = quality.holdout.rmse_mean
        print(
            f"laws {result.draft.structure.friction}, {result.draft.structure.lag}; hold-out {1e3 * held:.4f} mrad = "
            f"{held / FLOOR_RAD:.3f} of √(σ² + q²/12); grade {quality.grade}; {time.monotonic() - began:.0f} s"
        )
    wanted = [row for row in every if row.wanted]
    worst = {kind: max(row.error for row in wanted if row.kind == kind) for kind in WITHIN}
    print(f"identified: {sum(row.verdict == 'identified' for row in wanted)} of {len(wanted)}")
    print(
        json.dumps(
            {
                "worst_relative_error": {kind: round(error, 5) for kind, error in worst.items()},
                "latency_error_s": round(max(row.error for row in wanted if row.kind == "latency"), 6),
                "false_identified": sum(row.false for row in every),
            }
        )
    )


if __name__ == "__main__":
    main()
