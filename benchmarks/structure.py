"""Is the right law chosen: `python -m benchmarks.structure [robots]`.

Planar arms of one and two joints by textbook (`_textbook`), with each law planted at a stated strength, one robot in so
many without any; the whole fit of each, from its log alone. Prints a table and, as its last line, JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping

import numpy as np

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, FitResult, Progress
from app.telemetry import FloatArray, Recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import parse_urdf
from benchmarks._textbook import Arm, follow

ROBOTS = 10
RATE_HZ = 100.0
SECONDS = 40.0
NOISE_RAD = 2e-4
STEP_RAD = 2.0 * np.pi / 2**14
"""Of the encoder: 14 bits."""

STRENGTHS = {
    "plain": "Coulomb friction and damping",
    "stribeck": "breakaway friction 1.5 to 2.5 times Coulomb friction, Stribeck velocity 0.03 to 0.15 rad/s",
    "load": "0.1 to 0.3 of the load",
    "stribeck+load": "both",
}


def arm(law: str, joints: int, draw: np.random.Generator) -> Arm:
    """A robot with the named laws and everything else drawn."""

    def each(low: float, high: float) -> FloatArray:
        return np.exp(draw.uniform(np.log(low), np.log(high), joints))

    laws = law.split("+")
    length, mass = each(0.2, 0.35), each(0.8, 2.0)
    coulomb = each(0.2, 0.5)
    excess, stribeck, load = each(0.5, 1.5), each(0.03, 0.15), each(0.1, 0.3)
    return Arm(
        mass=mass,
        length=length,
        centre=0.5 * length,
        inertia=mass * length**2 / 12.0,
        armature=each(0.01, 0.04),
        damping=each(0.1, 0.5),
        coulomb=coulomb,
        breakaway=coulomb * (1.0 + excess) if "stribeck" in laws else coulomb,
        stribeck=stribeck,
        load=load if "load" in laws else np.zeros(joints),
        kp=each(40.0, 120.0),
        kd=each(1.0, 3.0),
        latency_s=float(draw.uniform(0.004, 0.02)),
        lag_s=0.0,
    )


def motion(joints: int, draw: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Stamps and position commands: a sum of sines, slow and quick, from rest; shapes (T,) and (T, n)."""
    t_s = np.arange(round(SECONDS * RATE_HZ)) / RATE_HZ
    frequency = np.array([0.07, 0.19, 0.43, 0.9, 1.7])
    phase = draw.uniform(0.0, 2.0 * np.pi, (len(frequency), joints))
    size = np.array([0.5, 0.35, 0.25, 0.12, 0.06])
    waves = size[:, None] * np.sin(2.0 * np.pi * frequency[:, None] * (t_s[:, None, None] - 1.0) + phase)
    total = waves.sum(axis=1)
    begun = np.clip(t_s - 1.0, 0.0, 1.0)[:, None]
    return t_s, begun * total


def recording(robot: Arm, draw: np.random.Generator) -> Recording:
    """What its log holds."""
    joints = len(robot.mass)
    t_s, targets = motion(joints, draw)
    read = follow(robot, t_s, targets) + NOISE_RAD * draw.standard_normal(targets.shape)
    t_ns = np.round(t_s * 1e9).astype(np.int64)
    names = tuple(f"joint{i}" for i in range(joints))
    channels = {"position": np.round(read / STEP_RAD) * STEP_RAD, "command_position": targets}
    return Recording("log", 0, t_ns, names, channels, {})  # type: ignore[arg-type] # both are channels


def fit(robot: Arm, log: Recording) -> FitResult:
    """The twin of its log, link masses and gains known."""
    names = log.names
    declared = RobotDeclaration.model_validate(
        {
            "schema": "twincal.robot/1",
            "robot": "r",
            "fleet": "f",
            "controller": {
                "kind": "pd",
                "kp": dict(zip(names, robot.kp.tolist(), strict=True)),
                "kd": dict(zip(names, robot.kd.tolist(), strict=True)),
            },
        }
    )
    return calibrate(FitRequest(declared, parse_urdf(robot.urdf()), (log,), (), 0, 3600.0, None), _ignore)


def chosen(structure: Mapping[str, object]) -> str:
    """A structure's laws beyond the plain ones."""
    laws = [name for name in ("stribeck", "load") if name in str(structure["friction"])]
    laws += ["lag"] if structure["lag"] == "delay+lag" else []
    laws += ["backlash"] if structure["backlash"] else []
    return "+".join(laws) or "plain"


def _ignore(_: Progress) -> None:
    """A benchmark prints its table alone."""


def main() -> None:
    """Robots by turns of law and number of joints."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROBOTS
    right: dict[str, list[bool]] = {law: [] for law in STRENGTHS}
    print(f"{'robot':>5} joints  {'planted':14} {'chosen':20} seconds")
    for index in range(count):
        law = list(STRENGTHS)[index % len(STRENGTHS)]
        joints = 1 + (index // len(STRENGTHS)) % 2
        draw = np.random.default_rng([2024, index])
        robot = arm(law, joints, draw)
        began = time.process_time()
        result = fit(robot, recording(robot, draw))
        (best,) = (each for each in result.structures if each.chosen)
        found = chosen(best.structure)
        right[law].append(found == law)
        print(f"{index:5} {joints:6}  {law:14} {found:20} {time.process_time() - began:7.1f}", flush=True)
    rate = {law: round(float(np.mean(each)), 3) for law, each in right.items() if each}
    for law, share in rate.items():
        print(f"{law:14} {100.0 * share:5.0f} % of {len(right[law])}: {STRENGTHS[law]}")
    print(json.dumps({"right_rate": rate}))


if __name__ == "__main__":
    main()
