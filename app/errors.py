"""Every error twincal raises on purpose. Constructors take values and build the message.

The message is one line that names what is at fault and what would be right; `api/errors.py` maps kinds to status codes
and the command line prints the message and exits with 2.
"""

from __future__ import annotations


class TwincalError(Exception):
    """Base of all errors raised on purpose."""


class InvalidInputError(TwincalError):
    """Something handed to us is wrong.

    Args:
        where: the field, line, joint or link at fault, e.g. `joints.wrist.unit` or `line 12`.
        problem: what is wrong, with the value.
        remedy: what would be right; empty if the problem says it already.
    """

    def __init__(self, where: str, problem: str, remedy: str = "") -> None:
        self.where = where
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{where}: {problem}" + (f" ({remedy})" if remedy else ""))


class DescriptionError(InvalidInputError):
    """A robot description (URDF) that can't be used; `where` names the link, joint or line."""


class DeclarationError(InvalidInputError):
    """A `twincal.robot/1` declaration that can't be used; `where` is the field's path."""


class LogError(InvalidInputError):
    """A log file that can't be read; `where` is `file:line` or `file: column`."""


class TelemetryError(InvalidInputError):
    """A telemetry message that is refused whole.

    Args:
        reason: one of the stable dead-letter reasons, e.g. `length_mismatch`.
        where: the field at fault.
        problem: what is wrong.
        remedy: what would be right.
    """

    def __init__(self, reason: str, where: str, problem: str, remedy: str = "") -> None:
        self.reason = reason
        super().__init__(where, problem, remedy)


class NotFoundError(TwincalError):
    """A thing asked for by id that isn't there."""

    def __init__(self, kind: str, identifier: str, hint: str = "") -> None:
        self.kind = kind
        self.identifier = identifier
        super().__init__(f"no {kind} {identifier!r}" + (f"; {hint}" if hint else ""))


class ConflictError(TwincalError):
    """A request that contradicts the state of what it is about."""


class FitImpossibleError(TwincalError):
    """The data allow no fit: says what is missing and which parameters that costs.

    Args:
        message: what is missing.
        report_html: the report for people; empty if none could be made.
    """

    def __init__(self, message: str, report_html: str = "") -> None:
        self.report_html = report_html
        super().__init__(message)


class SimulationError(TwincalError):
    """A rollout that diverged or an engine that refused a model."""


class ServiceError(TwincalError):
    """A database, broker or child process that can't be reached or won't start."""
