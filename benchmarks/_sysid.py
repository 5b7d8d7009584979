"""The planted arm's parameters by mujoco.sysid: least squares on whole runs, its own optimiser and stopping rule."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
from mujoco import rollout, sysid
from mujoco.sysid._src.timeseries import SignalType

from app.demo.arm import Drivetrain
from app.demo.reality import build_spec
from app.demo.truth import PERFECT_ENCODER, Truth
from app.telemetry import FloatArray, Recording
from app.twin.description import Description
from benchmarks._planted_arm import GAINS, LINKS

STEP_NS = 1_000_000
MOST_ITERATIONS = 100
_REST_ROWS = 500
"""At the start the arm rests: the mean of these rows is where it is."""


@dataclass(slots=True)
class Peer:
    """One fit by mujoco.sysid.

    Attributes:
        description: of the arm.
        start: parameters by their name in a twin document.
        scaled: whether it scales its parameters by its Jacobian (`x_scale="jac"`), which is not its default.
        visited: wall time and processor time since the start [s] and parameters of every point it evaluated by itself.
    """

    description: Description
    start: Mapping[str, float]
    scaled: bool
    visited: list[tuple[float, float, FloatArray]] = field(default_factory=list)

    def fit(self, recording: Recording) -> None:
        """Fit; the last point visited is where it ends."""
        spec = self._spec()
        model = spec.compile()
        control, initial = _inputs(model, recording)
        names = [f"{joint}_qpos" for joint in _order(model)]
        measured = recording.channels["position"][:, [recording.names.index(j) for j in _order(model)]]
        states = [(name, SignalType.MjStateQPos) for name in names]
        times = recording.t_ns * 1e-9
        sequence = sysid.ModelSequences(
            "arm",
            spec,
            "fitted",
            initial,
            sysid.TimeSeries(times, control),
            sysid.TimeSeries.from_names(times, measured, model, states),
            allow_missing_sensors=True,
        )
        residual = sysid.build_residual_fn(models_sequences=[sequence], enabled_observations=states)
        began, used = time.monotonic(), time.process_time()

        def visit(x: FloatArray) -> None:
            self.visited.append((time.monotonic() - began, time.process_time() - used, np.array(x).ravel()))

        def watched(x: FloatArray, params: Any, **more: Any) -> Any:
            found = residual(x, params, **more)
            if x.ndim == 1 or x.shape[1] == 1:
                visit(x)
            return found

        options = {"x_scale": "jac"} if self.scaled else {}
        with contextlib.redirect_stdout(io.StringIO()):  # a line for each iteration
            _, result = sysid.optimize(
                self._parameters(), watched, optimizer="mujoco", verbose=False, max_iters=MOST_ITERATIONS, **options
            )
        visit(result.x)

    def error(self, x: FloatArray, recording: Recording) -> float:
        """RMS difference of a free run to a recording, mean over joints [rad]."""
        parameters = self._parameters()
        parameters.update_from_vector(x)
        model = sysid.apply_param_modifiers(parameters, self._spec())
        control, initial = _inputs(model, recording)
        states, _ = rollout.rollout(model, mujoco.MjData(model), initial, control[:-1])
        position = np.vstack([initial[1 : 1 + model.nq], states[0, :, 1 : 1 + model.nq]])
        measured = recording.channels["position"][:, [recording.names.index(j) for j in _order(model)]]
        return float(np.sqrt(np.mean((position - measured) ** 2, axis=0)).mean())

    def _spec(self) -> mujoco.MjSpec:
        drives = {
            joint: Drivetrain(
                self.start[f"joint/{joint}/coulomb_friction_nm"],
                self.start[f"joint/{joint}/viscous_damping_nm_s_per_rad"],
                self.start[f"joint/{joint}/armature_kg_m2"],
            )
            for joint in GAINS
        }
        return build_spec(self.description, GAINS, Truth(drives, {}, 0.0, PERFECT_ENCODER, 0), STEP_NS)

    def _parameters(self) -> Any:
        found = sysid.ParameterDict()
        fields = {
            "armature_kg_m2": "armature",
            "viscous_damping_nm_s_per_rad": "damping",
            "coulomb_friction_nm": "frictionloss",
        }
        for joint in GAINS:
            for name, attribute in fields.items():
                value = self.start[f"joint/{joint}/{name}"]

                def put(spec: Any, parameter: Any, joint: str = joint, attribute: str = attribute) -> None:
                    number = float(parameter.value[0])
                    setattr(
                        spec.joint(joint), attribute, np.array([number, 0.0, 0.0]) if attribute == "damping" else number
                    )

                found.add(sysid.Parameter(f"{joint}/{name}", value, 0.01 * value, 100.0 * value, modifier=put))
        for link in LINKS:
            inertial = self.description.links[link]
            inertia = inertial.inertia_kg_m2[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]

            def weigh(spec: Any, parameter: Any, link: str = link, of: FloatArray = inertia / inertial.mass_kg) -> None:
                spec.body(link).mass = float(parameter.value[0])
                spec.body(link).fullinertia = float(parameter.value[0]) * of

            mass = inertial.mass_kg
            found.add(sysid.Parameter(f"{link}/mass", mass, 0.3 * mass, 3.0 * mass, modifier=weigh))
        return found


def _order(model: mujoco.MjModel) -> list[str]:
    return [model.joint(i).name for i in range(model.nq)]


def _inputs(model: mujoco.MjModel, recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Each step's command and the first state.

    A step's force belongs to the instant it begins at: its command is the mean of the rows around that.
    """
    columns = [recording.names.index(joint) for joint in _order(model)]
    asked = recording.channels["command_position"][:, columns]
    control = 0.5 * (asked + np.vstack([asked[:1], asked[:-1]]))
    data = mujoco.MjData(model)
    data.qpos[:] = recording.channels["position"][:_REST_ROWS, columns].mean(axis=0)
    return control, sysid.create_initial_state(model, data.qpos, data.qvel, data.act)
