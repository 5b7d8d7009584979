"""What a twin is made of besides its description: each parameter's name, unit, nominal, prior, bounds and coordinate.

Values travel in their own unit; a fit moves in coordinates, ln(value) where the transform is log and the value itself
where it is linear, which are also the coordinates a posterior is published in.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, assert_never

import numpy as np

from app.errors import DeclarationError
from app.telemetry import FloatArray
from app.twin.declaration import Fit
from app.twin.document import LognormalPrior, NormalPrior, Prior, Source, Transform, UniformPrior

Place = Literal["joint", "no_load", "mass", "com", "inertia", "latency", "lag", "tilt", "load"]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a parameter goes in the dynamics.

    Attributes:
        place: a joint's row or no-load speed, a body's mass, centre of mass or inertia, the robot's latency, controller
            lag, tilt or load.
        row: `friction.ARMATURE` and its kin for joints, the axis 0..2 for a centre of mass, 0..5 of an inertia's xx yy
            zz xy xz yz, roll and pitch of a tilt, mass and centre of a load.
        index: the degree of freedom, or the body.
    """

    place: Place
    row: int
    index: int


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter.

    Attributes:
        name: path with the unit at its end, e.g. `joint/elbow/armature_kg_m2`.
        slot: where it goes.
        nominal: what description and declaration say; 0 where they say nothing.
        initial: where a fit starts: the prior's median; the value itself where it isn't fitted.
        prior: belief before the data.
        bounds: lowest and highest value a fit may reach.
        transform: its coordinate.
        fitted: False keeps `initial`.
        source: of the value while it isn't fitted.
    """

    name: str
    slot: Slot
    nominal: float
    initial: float
    prior: Prior
    bounds: tuple[float, float]
    transform: Transform
    fitted: bool
    source: Source

    def coordinate(self, value: FloatArray | float) -> FloatArray:
        """Map values to coordinates."""
        array = np.asarray(value, dtype=np.float64)
        return np.log(array) if self.transform == "log" else array

    def value(self, coordinate: FloatArray | float) -> FloatArray:
        """Map coordinates to values."""
        array = np.asarray(coordinate, dtype=np.float64)
        return np.exp(array) if self.transform == "log" else array

    def prior_moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the prior in the parameter's coordinate, bounds left aside."""
        mean, sd = _moments(self.prior, self.transform)
        return mean, sd


def _moments(prior: Prior, transform: Transform) -> tuple[float, float]:
    match prior:
        case LognormalPrior(lognormal=(mu, sigma)):
            if transform == "log":
                return mu, sigma
            mean = math.exp(mu + 0.5 * sigma**2)
            return mean, mean * math.sqrt(math.expm1(sigma**2))
        case NormalPrior(normal=(mean, sd)):
            return (mean, sd) if transform == "linear" else (math.log(mean), sd / mean)
        case UniformPrior(uniform=(low, high)):
            if transform == "log":
                low, high = math.log(low), math.log(high)
            return 0.5 * (low + high), (high - low) / math.sqrt(12.0)
        case _:
            assert_never(prior)


def lognormal(median: float, spread: float) -> LognormalPrior:
    """A prior with this median, and this standard deviation of its logarithm."""
    return LognormalPrior(lognormal=(math.log(median), spread))


def normal(mean: float, sd: float) -> NormalPrior:
    """A prior with this mean and standard deviation; bounds cut it."""
    return NormalPrior(normal=(mean, sd))


def freeze(spec: ParameterSpec, value: float, source: Source) -> ParameterSpec:
    """The parameter at a value it keeps."""
    return replace(spec, initial=value, fitted=False, source=source)


def patterns_of(choice: Fit) -> tuple[str, ...]:
    """Every pattern over parameter names in a declaration."""
    return (*choice.free, *choice.frozen, *choice.prior)


def named_by(specs: Iterable[ParameterSpec], usual: Iterable[ParameterSpec], patterns: Iterable[str]) -> set[str]:
    """Names of those parameters that a pattern matches which matches none of the usual ones."""
    known = [spec.name for spec in usual]
    special = [p for p in patterns if not any(fnmatch.fnmatchcase(name, p) for name in known)]
    return {spec.name for spec in specs if any(fnmatch.fnmatchcase(spec.name, p) for p in special)}


def apply_choice(
    specs: Iterable[ParameterSpec], choice: Fit, elsewhere: Iterable[str] = ()
) -> tuple[ParameterSpec, ...]:
    """Free, freeze and give priors as the declaration asks.

    Args:
        specs: the twin's parameters.
        choice: the declaration's.
        elsewhere: names of parameters that the robot's twin has under another structure: a pattern may name those.

    Raises:
        DeclarationError: naming a pattern that matches no parameter, or a value outside the bounds.
    """
    result, others = list(specs), list(elsewhere)
    for where, patterns in (("fit.free", choice.free), ("fit.frozen", choice.frozen), ("fit.prior", choice.prior)):
        for pattern in patterns:
            matched = [i for i, spec in enumerate(result) if fnmatch.fnmatchcase(spec.name, pattern)]
            if not matched and not any(fnmatch.fnmatchcase(name, pattern) for name in others):
                known = ", ".join(sorted({name.rsplit("/", 1)[-1] for name in (*others, *(s.name for s in result))}))
                remedy = f"names end in {known}"
                raise DeclarationError(f"{where}.{pattern}", "matches no parameter of this robot", remedy)
            for i in matched:
                result[i] = _chosen(result[i], where, pattern, choice)
    return tuple(result)


def _chosen(spec: ParameterSpec, where: str, pattern: str, choice: Fit) -> ParameterSpec:
    if where == "fit.free":
        return replace(spec, fitted=True)
    if where == "fit.prior":
        prior = choice.prior[pattern]
        mean, _ = _moments(prior, spec.transform)
        initial = float(np.clip(spec.value(mean), *spec.bounds))
        return replace(spec, prior=prior, initial=initial)
    value = choice.frozen[pattern]
    low, high = spec.bounds
    if not low <= value <= high and not (value == 0.0 and spec.nominal == 0.0):
        raise DeclarationError(f"{where}.{pattern}", f"{value} is outside [{low}, {high}] of {spec.name}")
    return freeze(spec, value, "declared")
