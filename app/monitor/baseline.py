"""What is prepared once per robot and version, so that scoring its telemetry is cheap."""

from __future__ import annotations

from dataclasses import dataclass

from app.telemetry import FloatArray, read_only
from app.twin.declaration import RobotDeclaration
from app.twin.description import Description
from app.twin.document import TwinDocument
from app.twin.model import TwinModel


@dataclass(frozen=True, slots=True)
class Watched:
    """One robot's active version, ready to be compared with telemetry.

    Attributes:
        robot: its id.
        version: of the twin.
        description: the one the twin was fitted on.
        declaration: of the robot, for its joint map.
        model: the twin's.
        values: the version's parameters in the model's order, shape (K,).
        window_s: length of a window [s].
        baseline: error a healthy window has, per joint of the model [rad or m], never below what its sensor can tell;
            NaN for a joint the hold-out didn't judge, shape (n,).
    """

    robot: str
    version: int
    description: Description
    declaration: RobotDeclaration
    model: TwinModel
    values: FloatArray
    window_s: float
    baseline: FloatArray

    def __post_init__(self) -> None:
        read_only(self.values)
        read_only(self.baseline)


def prepare(twin: TwinDocument, declaration: RobotDeclaration, description: Description) -> Watched:
    """Prepare a version to be watched.

    Args:
        twin: the active version.
        declaration: of the robot.
        description: the one the twin was fitted on.

    Raises:
        InvalidInputError: when the version can't be watched: naming `quality.windowed` or `description`.
    """
    raise NotImplementedError
