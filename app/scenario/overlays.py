"""What a request may lay over a drawn robot: load, wear, rare events, delays, and the world around it.

Overlays are applied on top of the draw and listed in the scenario; the draw itself stays what the posterior gave.
Each number has a stream of its own under the overlay's kind, what it is about and how many of the same came before it,
so that an overlay of another kind, wherever it stands in the list, changes none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.scenario.distributions import Distribution, within
from app.scenario.quantities import Path, Quantities, Subject, matching
from app.telemetry import FloatArray

MAX_PATTERNS: Final = 100
MAX_OBJECTS: Final = 100

Length = Annotated[Distribution, within(-100.0, 100.0)]
Factor = Annotated[Distribution, within(0.0, 1000.0)]
Angle = Annotated[Distribution, within(-2.0 * math.pi, 2.0 * math.pi)]
Delay = Annotated[Distribution, within(0.0, 10.0)]
Patterns = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=300)], ...], Field(min_length=1, max_length=MAX_PATTERNS)
]
Columns = Iterator[tuple[Path, FloatArray]]


class _Overlay(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @property
    def target(self) -> str:
        """What it is about, as part of its streams' names."""
        return ""

    def check(self, subject: Subject, where: str) -> None:
        """Hold it against a robot.

        Raises:
            InvalidInputError: naming the field that asks for what the robot doesn't have.
        """

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """Its numbers, one array of all scenarios each."""
        raise NotImplementedError


class Payload(_Overlay):
    """A load welded to a link: a ball, or a point where it has no radius."""

    kind: Literal["payload"]
    link: str = Field(max_length=300, description="the link that carries it, by the description's name")
    mass_kg: Annotated[Distribution, within(0.0, 10_000.0)]
    com_m: tuple[Length, Length, Length] = Field((0.0, 0.0, 0.0), description="its centre in the link's frame [m]")
    radius_m: Annotated[Distribution, within(0.0, 10.0)] = 0.0

    @property
    def target(self) -> str:
        """The link."""
        return self.link

    def check(self, subject: Subject, where: str) -> None:
        """The link must exist."""
        subject.require_link(self.link, f"{where}.link")

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """Mass, centre, and the inertia about the link's origin (parallel axes) that it adds."""
        mass = draw("mass_kg", self.mass_kg)
        com = [draw(f"com_{axis}_m", part) for axis, part in zip("xyz", self.com_m, strict=True)]
        own = 0.4 * mass * draw("radius_m", self.radius_m) ** 2
        distance2 = com[0] ** 2 + com[1] ** 2 + com[2] ** 2
        yield ("mass_kg",), mass
        for i in range(3):
            yield ("com_m", i), com[i]
        yield ("own_inertia_kg_m2",), own
        for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)):
            moment = (own + mass * distance2 if i == j else 0.0) - mass * com[i] * com[j]
            yield ("inertia_about_link_kg_m2", f"{'xyz'[i]}{'xyz'[j]}"), moment


class Wear(_Overlay):
    """Friction times a factor, and backlash; each joint has its own draw."""

    kind: Literal["wear"]
    joints: Patterns = Field(("*",), description="patterns over joint names")
    friction_factor: Factor = Field(1.0, description="of Coulomb and breakaway friction")
    damping_factor: Factor = Field(1.0, description="of viscous damping")
    backlash_rad: Annotated[Distribution, within(0.0, 1.0)] = Field(0.0, description="full gap of turning joints")
    backlash_m: Annotated[Distribution, within(0.0, 0.1)] = Field(0.0, description="full gap of sliding joints")

    def check(self, subject: Subject, where: str) -> None:
        """Each pattern must match a joint."""
        subject.require_matches(self.joints, subject.joints, f"{where}.joints")

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """Per joint."""
        for joint in matching(self.joints, subject.joints):
            gap = "backlash_m" if joint in subject.sliding else "backlash_rad"
            for name in ("friction_factor", "damping_factor", gap):
                yield ("joints", joint, name), draw(f"{name}/{joint}", getattr(self, name))


class LongTail(_Overlay):
    """Now and then some parameters are far from what they usually are."""

    kind: Literal["long_tail"]
    parameters: Patterns = Field(description="patterns over parameter names; what can be negative is never matched")
    probability: Annotated[float, Field(ge=0, le=1)] = Field(0.01, description="of a scenario to be one of these")
    factor: Annotated[Distribution, within(1e-3, 1e3)] = Field(description="of each of them, in such a scenario")

    def check(self, subject: Subject, where: str) -> None:
        """Each pattern must match a parameter."""
        subject.require_matches(self.parameters, subject.positive_parameters, f"{where}.parameters")

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """The factors, all 1 in an ordinary scenario."""
        happens = draw.share("happens") < self.probability
        for name in matching(self.parameters, subject.positive_parameters):
            yield ("factors", name), np.where(happens, draw(f"factor/{name}", self.factor), 1.0)


class Latency(_Overlay):
    """Commands late by more than the twin's own latency, unevenly, and lost."""

    kind: Literal["latency"]
    base_s: Annotated[float, Field(ge=0, le=10)] = Field(0.0, description="on top of the twin's own, always [s]")
    per_episode_s: Delay = Field(0.0, description="and this, drawn once a scenario [s]")
    jitter_s: Delay = Field(0.0, description="standard deviation from command to command [s]")
    drop: Annotated[Distribution, within(0.0, 1.0)] = Field(0.0, description="share of commands that never arrive")

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """What is added to the twin's own latency, and how uneven it is."""
        yield ("added_s",), self.base_s + draw("per_episode_s", self.per_episode_s)
        yield ("jitter_s",), draw("jitter_s", self.jitter_s)
        yield ("drop",), draw("drop", self.drop)


class FrictionPatches(_Overlay):
    """Rectangles of the ground that are more or less slippery."""

    kind: Literal["friction_patches"]
    count: Annotated[int, Field(ge=1, le=MAX_OBJECTS)] = 1
    x_m: Length = Field({"uniform": [-5.0, 5.0]}, validate_default=True, description="of the centres [m]")
    y_m: Length = Field({"uniform": [-5.0, 5.0]}, validate_default=True, description="of the centres [m]")
    size_m: Annotated[Distribution, within(1e-3, 100.0)] = Field(1.0, description="of each side [m]")
    mu_static: Annotated[Distribution, within(0.0, 10.0)]
    dynamic_ratio: Annotated[Distribution, within(0.0, 1.0)] = Field(1.0, description="dynamic over static friction")

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """Pose, sides and friction of each."""
        for k in range(self.count):
            yield ("patches", k, "x_m"), draw(f"x_m/{k}", self.x_m)
            yield ("patches", k, "y_m"), draw(f"y_m/{k}", self.y_m)
            yield ("patches", k, "yaw_rad"), math.pi * draw.share(f"yaw/{k}")
            yield ("patches", k, "length_m"), draw(f"length_m/{k}", self.size_m)
            yield ("patches", k, "width_m"), draw(f"width_m/{k}", self.size_m)
            static = draw(f"mu_static/{k}", self.mu_static)
            yield ("patches", k, "mu_static"), static
            yield ("patches", k, "mu_dynamic"), static * draw(f"dynamic_ratio/{k}", self.dynamic_ratio)


class Pushes(_Overlay):
    """Forces on a link from any direction, at any moment."""

    kind: Literal["pushes"]
    link: str = Field(max_length=300, description="the link that is pushed, at its centre of mass")
    count: Annotated[int, Field(ge=1, le=MAX_OBJECTS)] = 1
    within_s: Annotated[float, Field(gt=0, le=86_400)] = Field(description="of an episode's start [s]")
    force_n: Annotated[Distribution, within(0.0, 100_000.0)]
    duration_s: Annotated[Distribution, within(0.0, 60.0)] = 0.1

    @property
    def target(self) -> str:
        """The link."""
        return self.link

    def check(self, subject: Subject, where: str) -> None:
        """The link must exist."""
        subject.require_link(self.link, f"{where}.link")

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """When, how long, and the force in the world's axes."""
        for k in range(self.count):
            yield ("pushes", k, "at_s"), self.within_s * draw.share(f"at/{k}")
            yield ("pushes", k, "duration_s"), draw(f"duration_s/{k}", self.duration_s)
            force, up = draw(f"force_n/{k}", self.force_n), 2.0 * draw.share(f"up/{k}") - 1.0
            heading, level = 2.0 * math.pi * draw.share(f"heading/{k}"), np.sqrt(1.0 - up**2)
            for axis, part in enumerate((level * np.cos(heading), level * np.sin(heading), up)):
                yield ("pushes", k, "force_n", axis), force * part


class _Descriptor(_Overlay):
    """Numbers for a renderer or an environment; nothing of the robot changes."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields if name != "kind"):
            msg = "describes nothing; give one field at least"
            raise ValueError(msg)
        return self

    def columns(self, draw: Quantities, subject: Subject) -> Columns:
        """What was given."""
        for name in type(self).model_fields:
            wanted: Any = getattr(self, name)
            if name != "kind" and wanted is not None:
                yield (name,), draw(name, wanted)


class Light(_Descriptor):
    """The light on the scene."""

    kind: Literal["light"]
    illuminance_lux: Annotated[Distribution, within(0.0, 200_000.0)] | None = None
    azimuth_rad: Angle | None = None
    elevation_rad: Annotated[Distribution, within(-math.pi / 2, math.pi / 2)] | None = None
    color_temperature_k: Annotated[Distribution, within(500.0, 40_000.0)] | None = None


class Weather(_Descriptor):
    """The weather around the robot."""

    kind: Literal["weather"]
    temperature_c: Annotated[Distribution, within(-100.0, 150.0)] | None = None
    wind_m_s: Annotated[Distribution, within(0.0, 120.0)] | None = None
    wind_direction_rad: Angle | None = None
    rain_mm_h: Annotated[Distribution, within(0.0, 500.0)] | None = None
    snow_mm_h: Annotated[Distribution, within(0.0, 500.0)] | None = None
    visibility_m: Annotated[Distribution, within(0.0, 100_000.0)] | None = None
    dust_mg_m3: Annotated[Distribution, within(0.0, 100_000.0)] | None = None


Overlay = Annotated[
    Payload | Wear | LongTail | Latency | FrictionPatches | Pushes | Light | Weather, Field(discriminator="kind")
]


def check_overlays(overlays: tuple[Overlay, ...], subject: Subject) -> None:
    """Hold all of them against a robot.

    Raises:
        InvalidInputError: naming the field that asks for what the robot doesn't have.
    """
    for i, overlay in enumerate(overlays):
        overlay.check(subject, f"overlays.{i}")
