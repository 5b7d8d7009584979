"""Twins with a posterior worth drawing from, and scenarios of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.scenario.generate import Source, chunks, source_of
from app.scenario.records import Origin, records
from app.scenario.request import ScenarioChoice
from app.telemetry import FloatArray
from app.twin.document import Covariance, LognormalPrior, NormalPrior, Parameter, TwinDocument, TwinDraft, Verdict, seal
from tests.twins import CREATED, draft

LATENCY = "robot/command_latency_s"


def joint(name: str, what: str) -> str:
    return f"joint/{name}/{what}"


def parameter(value: float, sd: float, bounds: tuple[float, float], verdict: Verdict = "identified") -> Parameter:
    ends = (max(value - 1.64 * sd, bounds[0]), min(value + 1.64 * sd, bounds[1]))
    return Parameter(
        value=value,
        sd=sd,
        interval90=ends,
        verdict=verdict,
        source="fit",
        nominal=0.0,
        prior=NormalPrior(normal=(0.0, 1.0)),
        bounds=bounds,
    )


def declared(value: float) -> Parameter:
    return Parameter(
        value=value,
        sd=None,
        interval90=None,
        verdict=None,
        source="declared",
        nominal=value,
        prior=None,
        bounds=None,
    )


def twin_of(parameters: Mapping[str, Parameter], correlation: FloatArray | None = None) -> TwinDocument:
    """A published twin of these parameters, see `draft_of`."""
    return published(draft_of(parameters, correlation))


def published(content: TwinDraft) -> TwinDocument:
    return seal(content, version=7, parent=6, created_at=CREATED)


def draft_of(
    parameters: Mapping[str, Parameter], correlation: FloatArray | None = None, *, robot: str = "arm-07"
) -> TwinDraft:
    """A twin whose covariance has these parameters' deviations; armatures and masses are in logarithms."""
    names = tuple(name for name, one in parameters.items() if one.sd is not None)
    transform = {name: "log" if name.endswith(("_kg_m2", "mass_kg")) else "linear" for name in names}
    sd = []
    for name in names:
        own = parameters[name].sd
        assert own is not None
        sd.append(own / parameters[name].value if transform[name] == "log" else own)
    matrix = np.outer(sd, sd) * (np.eye(len(names)) if correlation is None else correlation)
    covariance = Covariance.model_validate(
        {"names": names, "transform": transform, "matrix": tuple(tuple(row) for row in matrix.tolist())}, strict=False
    )
    return draft(robot=robot).model_copy(update={"parameters": dict(parameters), "covariance": covariance})


def arm(joints: Sequence[str] = ("shoulder", "elbow"), *, robot: str = "arm-07", seed: int = 0) -> TwinDocument:
    """The arm's twin, published."""
    return published(arm_draft(joints, robot=robot, seed=seed))


def arm_draft(joints: Sequence[str] = ("shoulder", "elbow"), *, robot: str = "arm-07", seed: int = 0) -> TwinDraft:
    """An arm with eight parameters a joint, all correlated, some frictions near 0, and declared gains."""
    generator = np.random.default_rng(seed)
    parameters: dict[str, Parameter] = {LATENCY: parameter(0.012, 0.001, (0.0, 0.25))}
    for name in joints:
        link = f"link/{name}_link/"
        parameters |= {
            joint(name, "armature_kg_m2"): parameter(0.21, 0.02, (1e-5, 100.0)),
            joint(name, "viscous_damping_nm_s_per_rad"): parameter(0.5, 0.4, (0.0, 60.0), "weak"),
            joint(name, "coulomb_friction_nm"): parameter(0.1, 0.8, (0.0, 60.0), "not_identified"),
            joint(name, "encoder_offset_rad"): parameter(-0.003, 0.002, (-1.0, 1.0)),
            joint(name, "kp_nm_per_rad"): declared(40.0),
            link + "mass_kg": parameter(1.3, 0.3, (0.2, 6.0), "no_effect"),
            link + "com_x_m": parameter(0.0, 0.02, (-0.2, 0.2), "no_effect"),
            link + "com_z_m": parameter(0.1, 0.02, (-0.1, 0.3), "weak"),
        }
    fitted = sum(one.sd is not None for one in parameters.values())
    spread = generator.normal(size=(fitted, 2 * fitted))
    covariance = spread @ spread.T
    deviation = np.sqrt(np.diag(covariance))
    return draft_of(parameters, covariance / np.outer(deviation, deviation), robot=robot)


def choice_of(**asked: Any) -> ScenarioChoice:
    return ScenarioChoice.model_validate({"n": 100, "seed": 7, **asked})


def origin_of(choice: ScenarioChoice, *twins: TwinDocument, fleet: str | None = None) -> Origin:
    sources: list[Source] = [source_of(twin, choice) for twin in twins]
    return Origin(choice, tuple(sources), fleet)


def chunk_records(origin: Origin) -> list[dict[str, Any]]:
    """All scenarios as JSON objects."""
    found = chunks(origin.choice, origin.sources, origin.fleet)
    return [record for chunk in found for record in records(chunk, origin.choice.seed)]


def wide(name: str = "joint/elbow/armature_kg_m2") -> Parameter:
    """A parameter as the prior has it: the data said nothing."""
    return Parameter(
        value=0.2,
        sd=0.2 * 1.5,
        interval90=(0.2 * float(np.exp(-1.64 * 1.5)), 0.2 * float(np.exp(1.64 * 1.5))),
        verdict="not_identified",
        source="fit",
        nominal=0.0,
        prior=LognormalPrior(lognormal=(float(np.log(0.2)), 1.5)),
        bounds=(0.2 * float(np.exp(-9.0)), 0.2 * float(np.exp(9.0))),
    )
