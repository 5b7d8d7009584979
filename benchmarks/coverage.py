"""Do 90 % intervals hold the truth nine times out of ten: `python -m benchmarks.coverage [--robots N] [--first I]`.

Arms of two and three joints whose every parameter is drawn from the very prior their fit states; by turns with plain
friction (played by MuJoCo), with Stribeck friction and with friction that grows with the load (played by the twin's own
rollout: no other engine here knows these laws); by turns with white, rounded and heavy-tailed noise. The whole fit of
each, structure included, from its log alone. Counted per kind of parameter, never pooled; parameters that the chosen
structure doesn't have aren't counted. Prints a table and, as its last line, JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from app.calibration.fit import calibrate
from app.calibration.types import FitRequest, Progress
from app.demo.arm import Drivetrain, Gains
from app.demo.motion import Commands
from app.demo.reality import simulate
from app.demo.truth import PERFECT_ENCODER, Truth
from app.errors import TwincalError
from app.telemetry import FloatArray, Recording
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description, parse_urdf
from app.twin.document import LognormalPrior, NormalPrior, Prior, TwinDraft, UniformPrior
from app.twin.model import PLAIN, Structure, TwinModel
from tests.physics import model_of, two_link
from tests.planted import declare, follow, swings

ROBOTS = 40
RATE_HZ = 100.0
SECONDS, SETTLE_S, REST_S = 20.0, 3.0, 1.0
STEP_NS = 250_000
FRICTIONS = {
    "plain": PLAIN,
    "stribeck": Structure("coulomb+viscous+stribeck"),
    "load": Structure("coulomb+viscous+load"),
}
NOISES = ("white", "rounded", "heavy-tailed")
KINDS = (
    "armature",
    "viscous_damping",
    "coulomb_friction",
    "breakaway_friction",
    "stribeck_velocity",
    "load_friction",
    "encoder_offset",
    "command_latency",
    "mass",
    "com",
)
ENCODER_STEP_RAD = 2.0 * math.pi / 2**14
GAINS = {"turn": Gains(150.0, 8.0), "shoulder": Gains(150.0, 8.0), "elbow": Gains(60.0, 3.0)}
_TURN = """<link name="column"><inertial><origin xyz="0.02 0 0.2"/><mass value="2.0"/>
<inertia ixx="0.03" iyy="0.03" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="turn" type="continuous"><parent link="base"/><child link="column"/><axis xyz="0 0 1"/></joint>
<joint name="shoulder" type="continuous"><parent link="column"/>"""


@dataclass(frozen=True, slots=True)
class Robot:
    """One robot of the benchmark.

    Attributes:
        description: what its fit is told.
        declaration: gains.
        model: the laws it follows, with the prior of each parameter.
        values: its truth, shape (K,).
        friction: which of `FRICTIONS`.
        noise: which of `NOISES`.
    """

    description: Description
    declaration: RobotDeclaration
    model: TwinModel
    values: FloatArray
    friction: str
    noise: str

    def truth(self) -> dict[str, float]:
        """Fitted parameters by name."""
        named = zip(self.model.specs, self.values.tolist(), strict=True)
        return {spec.name: value for spec, value in named if spec.fitted}


def arm(joints: int) -> Description:
    """Two links in a vertical plane, for three joints on a column that turns."""
    if joints == 2:
        return two_link()
    plain = two_link().source.decode()
    head = '<joint name="shoulder" type="continuous"><parent link="base"/>'
    assert head in plain
    return parse_urdf(plain.replace(head, _TURN).encode())


def draw_robot(index: int) -> Robot:
    """The robot of this number."""
    draw = np.random.default_rng([77, index])
    description = arm(2 + (index // 9) % 2)
    names = [name for name in GAINS if name in description.joints]
    controller = {
        "kind": "pd",
        "kp": {name: GAINS[name].kp_nm_per_rad for name in names},
        "kd": {name: GAINS[name].kd_nm_s_per_rad for name in names},
    }
    friction = list(FRICTIONS)[index % 3]
    channels = frozenset({"position", "command_position"})
    model = model_of(description, controller, channels=channels, structure=FRICTIONS[friction])  # type: ignore[arg-type]
    values = np.array([_one(s.prior, s.bounds, draw) if s.fitted else s.initial for s in model.specs])
    for i, name in enumerate(model.names):
        if name.endswith("breakaway_friction_nm"):  # no smaller than Coulomb friction: drawn until it isn't
            coulomb = values[model.names.index(name.replace("breakaway", "coulomb"))]
            while values[i] < coulomb:
                values[i] = _one(model.specs[i].prior, model.specs[i].bounds, draw)
    return Robot(description, declare(controller), model, values, friction, NOISES[(index // 3) % 3])


def _one(prior: Prior, bounds: tuple[float, float], draw: np.random.Generator) -> float:
    """One draw within bounds."""
    while True:
        match prior:
            case LognormalPrior(lognormal=(mu, sigma)):
                value = math.exp(draw.normal(mu, sigma))
            case NormalPrior(normal=(mean, sd)):
                value = draw.normal(mean, sd)
            case UniformPrior(uniform=(low, high)):
                value = draw.uniform(low, high)
        if bounds[0] <= value <= bounds[1]:
            return value


def record(robot: Robot, index: int) -> Recording:
    """What its log holds."""
    rows, settle = round(SECONDS * RATE_HZ), round(SETTLE_S * RATE_HZ)
    t_s = np.maximum(np.arange(rows) / RATE_HZ - REST_S, 0.0)
    n = len(robot.model.joints)
    targets = 0.3 + swings(t_s, n, index, amplitude=1.2)
    if robot.friction == "plain":
        clean = _by_mujoco(robot, targets)
    else:
        whole = np.vstack([np.repeat(targets[:1], settle, axis=0), targets])
        followed = follow(robot.model, robot.values, whole, rate_hz=RATE_HZ)
        order = [followed.names.index(joint) for joint in robot.model.joints]
        clean = followed.channels["position"][settle:, order]
    draw = np.random.default_rng([78, index])
    names = tuple(sorted(robot.model.joints))
    order = [robot.model.joints.index(name) for name in names]
    channels = {"position": _measured(clean, robot.noise, draw)[:, order], "command_position": targets[:, order]}
    t_ns = np.round(np.arange(rows) / RATE_HZ * 1e9).astype(np.int64)
    return Recording(f"robot {index}", 0, t_ns, names, channels, {})  # type: ignore[arg-type] # both are channels


def _measured(clean: FloatArray, noise: str, draw: np.random.Generator) -> FloatArray:
    match noise:
        case "white":
            return np.asarray(clean + 3e-4 * draw.standard_normal(clean.shape))
        case "rounded":
            rough = clean + 1e-4 * draw.standard_normal(clean.shape)
            return np.asarray(np.round(rough / ENCODER_STEP_RAD) * ENCODER_STEP_RAD)
        case _:
            return np.asarray(clean + 2e-4 * draw.standard_t(3.0, clean.shape))


def _by_mujoco(robot: Robot, targets: FloatArray) -> FloatArray:
    """Measured positions without noise, shape (T, n); columns follow the model's joints."""
    value = dict(zip(robot.model.names, robot.values.tolist(), strict=True))
    joints = robot.model.joints
    drives = {
        joint: Drivetrain(
            value[f"joint/{joint}/coulomb_friction_nm"],
            value[f"joint/{joint}/viscous_damping_nm_s_per_rad"],
            value[f"joint/{joint}/armature_kg_m2"],
        )
        for joint in joints
    }
    # Whole rows of latency are rows of the command, which is held: reality remembers 0.1 s of it.
    late, rest_s = divmod(value["robot/command_latency_s"], 1.0 / RATE_HZ)
    targets = np.vstack([np.repeat(targets[:1], int(late), axis=0), targets])[: len(targets)]
    truth = Truth(drives, {}, rest_s, PERFECT_ENCODER, 0)
    # The controller sees what the encoder says: asked for a target, it holds the target less the offset.
    offset = np.array([value[f"joint/{joint}/encoder_offset_rad"] for joint in joints])
    t_ns = np.round(np.arange(len(targets)) / RATE_HZ * 1e9).astype(np.int64)
    commands = Commands(t_ns, tuple(joints), targets - offset)
    followed = simulate(_true(robot.description, value), GAINS, truth, commands, step_ns=STEP_NS)
    order = [followed.names.index(joint) for joint in joints]
    return np.asarray(followed.channels["position"][:, order] + offset)


def _true(description: Description, value: Mapping[str, float]) -> Description:
    """The description with true masses and centres of mass; inertias scale along."""
    links = dict(description.links)
    for name, link in description.links.items():
        if f"link/{name}/mass_kg" in value:
            mass = value[f"link/{name}/mass_kg"]
            com = np.array([value[f"link/{name}/com_{axis}_m"] for axis in "xyz"])
            inertia = link.inertia_kg_m2 * (mass / link.mass_kg)
            links[name] = replace(link, mass_kg=mass, com_m=com, inertia_kg_m2=inertia)
    return replace(description, links=links)


def kind_of(name: str) -> str:
    """Last part of a name, without unit and axis."""
    last = name.rsplit("/", 1)[1]
    return next(kind for kind in KINDS if last.startswith(kind))


def held(draft: TwinDraft, truth: Mapping[str, float]) -> dict[str, bool]:
    """Whether the interval of each parameter that has one holds its truth."""
    rows = {}
    for name, parameter in draft.parameters.items():
        if parameter.interval90 is None or name not in truth:
            continue
        low, high = parameter.interval90
        rows[name] = low <= truth[name] <= high
    return rows


def show_missed(draft: TwinDraft, truth: Mapping[str, float], names: list[str]) -> None:
    """Print the intervals that don't hold their truth."""
    for name in names:
        interval = draft.parameters[name].interval90
        assert interval is not None
        print(f"        {name}: {truth[name]:.5g} isn't in {interval[0]:.5g} to {interval[1]:.5g}", flush=True)


def _ignore(_: Progress) -> None:
    """A benchmark prints its table alone."""


def main() -> None:
    """Fit so many robots and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--robots", type=int, default=ROBOTS)
    parser.add_argument("--first", type=int, default=0, help="number of the first robot")
    asked = parser.parse_args()
    inside: dict[str, list[bool]] = defaultdict(list)
    print(f"{'robot':>5} joints {'friction':9} {'noise':13} {'laws found':30} {'held':>7} seconds")
    for index in range(asked.first, asked.first + asked.robots):
        robot = draw_robot(index)
        about = f"{index:5} {len(robot.model.joints):6} {robot.friction:9} {robot.noise:13}"
        began = time.monotonic()
        request = FitRequest(robot.declaration, robot.description, (record(robot, index),), (), 0, 3600.0, None)
        try:
            draft = calibrate(request, _ignore).draft
        except TwincalError as error:
            print(f"{about} no fit: {error}", flush=True)
            continue
        rows = held(draft, robot.truth())
        for name, within in rows.items():
            inside[kind_of(name)].append(within)
        count = f"{sum(rows.values())}/{len(rows)}"
        laws = draft.structure.friction + ("+lag" if draft.structure.lag != "delay" else "")
        print(f"{about} {laws:30} {count:>7} {time.monotonic() - began:7.1f}", flush=True)
        show_missed(draft, robot.truth(), [name for name, within in rows.items() if not within])
    coverage = {kind: round(float(np.mean(each)), 3) for kind, each in sorted(inside.items())}
    for kind, share in coverage.items():
        print(f"{kind:20} {100.0 * share:5.1f} % of {len(inside[kind])}")
    print(json.dumps({"coverage90": coverage, "robots": asked.robots}))


if __name__ == "__main__":
    main()
