"""The robot declaration, `twincal.robot/1`: what a log or a message can't say about the robot that wrote it.

The body of `PUT /v1/robots/{robot}` and the `robot.yaml` beside a log. Everything is checked when it is read; errors
name the field by its path, e.g. `joints.wrist.unit`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from app.errors import DeclarationError, DescriptionError
from app.telemetry import FleetId, RobotId
from app.twin.declaration_check import check_against
from app.twin.declaration_file import read_values
from app.twin.declaration_values import (
    BY_SHAPE,
    MAP,
    PLAIN,
    Gains,
    Name,
    NonNegative,
    Number,
    Patterns,
    Positive,
    as_tuple,
    canonical_effort_unit,
    fleet_id,
    known_unit,
    prior_of_one_kind,
    robot_id,
)
from app.twin.description import Description, parse_urdf
from app.twin.document import Prior
from app.twin.units import Unit

__all__ = [
    "Controller",
    "DescriptionReference",
    "Fit",
    "JointDeclaration",
    "Payload",
    "RobotDeclaration",
    "check_against",
    "load_declaration",
]

SCHEMA: Final = "twincal.robot/1"

EffortUnit = Literal["N·m", "A", "mA", "ratio", "unknown"]
ControllerKind = Literal["pd", "torque", "velocity", "servo_duty", "none"]

_GAINS_OF: Final[dict[ControllerKind, tuple[str, ...]]] = {
    "pd": ("kp", "kd"),
    "velocity": ("kd",),
    "torque": (),
    "servo_duty": (),
    "none": (),
}


class _Part(BaseModel):
    # Strict: "500" or `true` where a number belongs is a slip, never what was meant.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )


class JointDeclaration(_Part):
    """How a joint's logged values become SI: sign · (scale · raw, in `unit`, converted to SI + offset)."""

    source: Name | None = Field(None, description="the joint's name in logs and messages; omitted: the description's")
    unit: Annotated[Unit | None, BeforeValidator(known_unit)] = Field(None, description="omitted: rad, m if prismatic")
    sign: Literal[1, -1] = Field(1, description="-1 where the robot counts against the description's axis")
    scale: Number = Field(1.0, description="units per raw value")
    offset: Number = Field(0.0, description="added to positions after conversion and before the sign [rad or m]")
    encoder: Literal["link", "motor"] = Field(
        "link", description="which side of the transmission's backlash positions are measured on"
    )
    ignore: bool = Field(default=False, description="leave its telemetry out and lock it in the twin")
    hold_at: Number | None = Field(
        None,
        description="where the twin locks it if ignored or not logged [rad or m]; omitted: 0, or the limit nearest",
    )

    @model_validator(mode="after")
    def _invertible(self) -> Self:
        if self.scale == 0:
            msg = "scale is 0, which maps every value to the same"
            raise ValueError(msg)
        return self


class Controller(_Part):
    """The law that turns commands into motor torque."""

    kind: ControllerKind = Field(description="pd, torque, velocity, servo_duty or none")
    rate_hz: Positive | None = Field(None, description="of the control loop; omitted: continuous")
    kp: Gains | None = Field(None, description="per joint, or one for all [N·m/rad or N/m]; omitted: fitted")
    kd: Gains | None = Field(None, description="per joint, or one for all [N·m·s/rad or N·s/m]; omitted: fitted")
    nominal_supply_v: Positive | None = Field(None, description="servo_duty only: the supply at the stall torque [V]")

    @model_validator(mode="after")
    def _only_what_the_kind_has(self) -> Self:
        for gain in ("kp", "kd"):
            if getattr(self, gain) is not None and gain not in _GAINS_OF[self.kind]:
                msg = f"a {self.kind} controller has no {gain}"
                raise ValueError(msg)
        if self.nominal_supply_v is not None and self.kind != "servo_duty":
            msg = f"nominal_supply_v belongs to a servo_duty controller, not to {self.kind}"
            raise ValueError(msg)
        return self

    def kp_of(self, joint: str) -> float | None:
        """Declared position gain of a joint [N·m/rad or N/m]; None is to be fitted."""
        return self.kp.get(joint) if isinstance(self.kp, dict) else self.kp

    def kd_of(self, joint: str) -> float | None:
        """Declared velocity gain of a joint [N·m·s/rad or N·s/m]; None is to be fitted."""
        return self.kd.get(joint) if isinstance(self.kd, dict) else self.kd


class Payload(_Part):
    """A known load fixed to a link; naming `robot/payload_…` in `fit.free` makes it the fit's starting point."""

    link: Name = Field(description="the link it is fixed to")
    mass_kg: NonNegative = Field(description="its mass [kg]")
    com_m: Annotated[tuple[Number, Number, Number], BeforeValidator(as_tuple)] = Field(
        (0.0, 0.0, 0.0), description="its centre of mass in the link's frame [m]"
    )


class Fit(_Part):
    """What the fit may move. Patterns are over parameter names: `*` is any text, `?` one character."""

    free: Patterns = Field((), description="fitted, though not by default")
    frozen: dict[Name, Number] = Field(default_factory=dict, description="held at this value, in the name's unit")
    prior: dict[Name, Annotated[Prior, BeforeValidator(prior_of_one_kind)]] = Field(
        default_factory=dict,
        description="believed before the data: lognormal, normal (mean, sd) or uniform (low, high)",
    )

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        for other, patterns in (("free", set(self.free)), ("prior", set(self.prior))):
            for pattern in self.frozen:
                if pattern in patterns:
                    msg = f"{pattern!r} is in frozen and in {other}"
                    raise ValueError(msg)
        return self


class DescriptionReference(_Part):
    """A description already uploaded."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


DescriptionSource = Annotated[Annotated[DescriptionReference, MAP] | Annotated[Name, PLAIN], BY_SHAPE]


class RobotDeclaration(_Part):
    """All of `twincal.robot/1`.

    `model_validate` and `model_validate_json` raise DeclarationError, naming the field's path.
    """

    schema_: Literal["twincal.robot/1"] = Field(alias="schema")
    robot: Annotated[RobotId, AfterValidator(robot_id)]
    fleet: Annotated[FleetId, AfterValidator(fleet_id)]
    description: DescriptionSource | None = Field(
        None, description="the URDF's path beside a file; by REST omitted or the digest of one already uploaded"
    )
    base: Literal["fixed", "floating"] = "fixed"
    joints: dict[Name, JointDeclaration] = Field(
        default_factory=dict, description="only what differs from: the log's name is the description's, in SI"
    )
    effort_unit: Annotated[EffortUnit, BeforeValidator(canonical_effort_unit)] = Field(
        "unknown", description="of measured effort; unknown keeps it out of the fit (N·m is N for prismatic joints)"
    )
    controller: Controller = Field(default_factory=lambda: Controller(kind="none"))
    payload: Payload | None = None
    fit: Fit = Field(default_factory=Fit)

    @field_validator("joints")
    @classmethod
    def _one_joint_a_source(cls, joints: dict[str, JointDeclaration]) -> dict[str, JointDeclaration]:
        reader: dict[str, str] = {}
        for name, joint in joints.items():
            source = joint.source or name
            if joint.ignore:
                continue
            if source in reader:
                msg = f"{reader[source]!r} and {name!r} both read {source!r}"
                raise ValueError(msg)
            reader[source] = name
        return joints

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Check plain values, as YAML or JSON gives them.

        Raises:
            DeclarationError: naming the field's path.
        """
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise _first_of(error) from error

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Check JSON text.

        Raises:
            DeclarationError: naming the field's path.
        """
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise _first_of(error) from error

    def joint(self, name: str) -> JointDeclaration:
        """What is declared of a joint, or that nothing differs."""
        return self.joints.get(name, _PLAIN_JOINT)


_PLAIN_JOINT: Final = JointDeclaration()


def load_declaration(path: Path) -> tuple[RobotDeclaration, Description]:
    """Read a declaration beside a log, and the description it names by a path relative to itself.

    Raises:
        DeclarationError: naming the line or the field's path, or a joint or link the description doesn't have.
        DescriptionError: naming the file and the line, link or joint.
    """
    declaration = RobotDeclaration.model_validate(read_values(path))
    if not isinstance(declaration.description, str):
        raise DeclarationError("description", "names no file", f"the URDF's path relative to {path.name}")
    urdf = path.parent / declaration.description
    try:
        source = urdf.read_bytes()
    except OSError as error:
        raise DeclarationError("description", f"{urdf}: {error.strerror or 'can not be read'}") from error
    try:
        description = parse_urdf(source)
    except DescriptionError as error:
        raise DescriptionError(f"{urdf.name}, {error.where}", error.problem, error.remedy) from error
    check_against(declaration, description)
    return declaration, description


_FIELDS: Final[dict[str, type[_Part]]] = {
    "": RobotDeclaration,
    "joints": JointDeclaration,
    "controller": Controller,
    "payload": Payload,
    "fit": Fit,
    "description": DescriptionReference,
}


_WISHES: Final = {
    "string_type": "text, in quotes",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "float_type": "a number",
}


def _first_of(error: ValidationError) -> DeclarationError:
    """The first complaint in one line, in the declaration's words."""
    first = error.errors(include_url=False)[0]
    # What pydantic adds to say which member of a union or which half of an entry it means.
    path = tuple(str(part) for part in first["loc"] if part not in ("<map>", "<plain>", "[key]"))
    where = ".".join(path) or "declaration"
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return DeclarationError(where, str(cause))
    return DeclarationError(where, *_complaint(first, path))


def _complaint(detail: ErrorDetails, path: tuple[str, ...]) -> tuple[str, str]:
    """What is wrong and what would be right."""
    if detail["type"] == "missing":
        return "is missing", ""
    if detail["type"] == "extra_forbidden":
        part = _FIELDS.get(path[0] if len(path) > 1 else "", RobotDeclaration)
        names = (field.alias or name for name, field in part.model_fields.items())
        return "is not a field", f"one of {', '.join(names)}"
    if "[key]" in detail["loc"][-1:]:
        return f"the name {detail['input']!r} is not text", "quote it"
    wish = _WISHES.get(detail["type"], detail["msg"].removeprefix("Input should be "))
    return f"{detail['input']!r} is not usable", wish[:1].lower() + wish[1:]
