"""A twin to be moved step by step in PyBullet, as a training loop does: commands in, measured positions out.

The dynamics are those of `world`, which judges every twin: armature, friction, latency, the motor's controller and its
saturation. What a scenario can have on top of a twin, and a fit doesn't know, is here: commands that come unevenly late
or get lost, and backlash.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from app.errors import InvalidInputError
from app.telemetry import FloatArray
from app.twin import friction, world
from app.twin.actuator import COMMAND_COLUMNS, FEED_FORWARD, KP_SCALE, TARGET, TARGET_VELOCITY
from app.twin.model import TIMESTEP_S, TwinModel


@dataclass(frozen=True, slots=True)
class Imperfections:
    """What lies between a command and its joint, beyond what the twin's parameters say.

    Attributes:
        backlash: full gap of each joint, shape (n,) [rad or m]; None: none.
        jitter_s: standard deviation of a command's delay about the twin's latency.
        drop: share of commands that never arrive.
        seed: of jitter and drops.
        effort_limits: saturate motors at the description's effort limits where the twin has no limit of its own.
    """

    backlash: FloatArray | None = None
    jitter_s: float = 0.0
    drop: float = 0.0
    seed: int = 0
    effort_limits: bool = False


class TwinRuntime:
    """A twin that is stepped. Made by `opened`.

    Attributes:
        joints: names of its joints, in the order of every array.
        client: PyBullet's physics client, for cameras and what else is in the scene.
        body: PyBullet's id of the robot.
        t_s: since the last reset.
    """

    def __init__(self, stepper: world.Stepper, imperfections: Imperfections) -> None:
        model = stepper.model
        self.joints, self.client, self.body = model.joints, stepper.body.client, stepper.body.uid
        self._stepper, self._imperfections = stepper, imperfections
        count = len(self.joints)
        self._gap = np.zeros(count) if imperfections.backlash is None else imperfections.backlash
        if imperfections.effort_limits:
            limits = [model.mechanism.description.joints[name].effort_limit for name in self.joints]
            row = stepper.joint[friction.TORQUE_LIMIT]
            row[:] = np.minimum(row, [np.inf if limit is None else limit for limit in limits])
        self.reset(np.zeros(count))

    def reset(self, position: FloatArray) -> FloatArray:
        """Put the joints somewhere at rest, told to stay there.

        Args:
            position: measured, so encoder offsets included [rad or m], shape (n,).

        Returns:
            The measured positions, shape (n,).
        """
        position = self._checked(position, "position")
        self._random = np.random.default_rng(self._imperfections.seed)
        self._played = position.copy()
        row = np.ones((1, len(position), COMMAND_COLUMNS))
        row[0, :, TARGET], row[0, :, TARGET_VELOCITY], row[0, :, FEED_FORWARD] = position, 0.0, 0.0
        self._t, self._rows, self._count = np.zeros(1), row, 1
        self._stepper.begin(position - self._offset, np.zeros(len(position)))
        return self.position

    @property
    def t_s(self) -> float:
        """Time since the last reset [s]."""
        return self._stepper.steps * TIMESTEP_S

    @property
    def position(self) -> FloatArray:
        """What the encoders read, without noise [rad or m], shape (n,)."""
        return self._stepper.position

    @property
    def velocity(self) -> FloatArray:
        """Of the joints, half a time step ago [rad/s or m/s], shape (n,)."""
        return self._stepper.v.copy()

    def step(
        self,
        position: FloatArray,
        duration_s: float,
        *,
        velocity: FloatArray | None = None,
        effort: FloatArray | None = None,
        kp_scale: float = 1.0,
    ) -> FloatArray:
        """Send a command and let time pass; the command holds until the next one arrives.

        Args:
            position: where the joints should be [rad or m], shape (n,).
            duration_s: rounded to the time step.
            velocity: how fast; None: 0 [rad/s or m/s], shape (n,).
            effort: added to the controller's; None: 0 [N·m or N], shape (n,).
            kp_scale: factor on the position gain, the command's own gain where the twin was fitted with one.

        Returns:
            The measured positions at the end, shape (n,).

        Raises:
            SimulationError: when a joint diverges.
        """
        row = np.ones((len(self.joints), COMMAND_COLUMNS))
        row[:, TARGET] = self._with_play(self._checked(position, "position"))
        row[:, TARGET_VELOCITY] = 0.0 if velocity is None else self._checked(velocity, "velocity")
        row[:, FEED_FORWARD] = 0.0 if effort is None else self._checked(effort, "effort")
        row[:, KP_SCALE] = kp_scale
        self._send(row)
        for _ in range(max(1, round(duration_s / TIMESTEP_S))):
            self._stepper.advance(self.t_s, self._t[: self._count], self._rows[: self._count])
        return self.position

    @property
    def _offset(self) -> FloatArray:
        row: FloatArray = self._stepper.joint[friction.OFFSET]
        return row

    def _with_play(self, target: FloatArray) -> FloatArray:
        """What is left of a target behind a gap: it follows once the gap is closed."""
        self._played = np.clip(self._played, target - 0.5 * self._gap, target + 0.5 * self._gap)
        return self._played

    def _send(self, row: FloatArray) -> None:
        """Put a command on its way. Commands don't overtake one another, nor arrive before they were sent."""
        lost, late = self._random.random(), self._random.standard_normal()
        if lost < self._imperfections.drop:
            return
        arrives = self.t_s + max(late * self._imperfections.jitter_s, -self._stepper.latency_s)
        if self._count == len(self._t):
            self._t = np.concatenate([self._t, np.zeros(self._count)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._t[self._count] = max(arrives, self._t[self._count - 1])
        self._rows[self._count] = row
        self._count += 1

    def _checked(self, values: FloatArray, name: str) -> FloatArray:
        array = np.asarray(values, dtype=np.float64)
        if array.shape != (len(self.joints),) or not np.isfinite(array).all():
            wanted = f"{len(self.joints)} finite numbers: {', '.join(self.joints)}"
            raise InvalidInputError(name, f"is {array.tolist()}", wanted)
        return array


@contextmanager
def opened(model: TwinModel, values: FloatArray, imperfections: Imperfections | None = None) -> Iterator[TwinRuntime]:
    """A twin in a PyBullet of its own, as long as the context lasts.

    Args:
        model: the robot.
        values: its parameters, shape (K,), see `TwinModel.names`.
        imperfections: what lies on the way of a command.

    Raises:
        SimulationError: when PyBullet refuses the model.
    """
    with world.loaded(model, values) as body:
        yield TwinRuntime(world.Stepper(model, values, body), imperfections or Imperfections())
