"""The child process of one fit: what a robot's description or data can kill is this, never the worker."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

from app.calibration.types import FitRequest, FitResult, Progress
from app.errors import FitImpossibleError, TwincalError

_OOM_SCORE: Final = "800"
"""When memory runs out the kernel ends a fit before the worker, the database or the broker."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a fit gave nothing.

    Attributes:
        reason: for people.
        report_html: what could be said about the data; empty if nothing.
    """

    reason: str
    report_html: str = ""


Message = Progress | FitResult | Failure
"""What a child sends: progress any number of times, then one result or failure."""


def main(channel: Connection) -> None:
    """Receive one `FitRequest`, fit it, send what comes of it."""
    _prepare()
    request: FitRequest = channel.recv()
    try:
        _send(channel, _fit(request, channel))
    except BrokenPipeError:
        sys.exit("the worker that asked for this fit is gone")


def _fit(request: FitRequest, channel: Connection) -> Message:
    # A worker, which imports this module too, needs no compiled kernel and no physics engine.
    from app.calibration.fit import calibrate  # noqa: PLC0415 - see above

    try:
        return calibrate(request, lambda progress: _send(channel, progress))
    except FitImpossibleError as error:
        return Failure(str(error), error.report_html)
    except TwincalError as error:
        return Failure(str(error))
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  the outermost loop of this process
        traceback.print_exc()
        return Failure(f"the fit broke off: {type(error).__name__}: {error}")


_sending = threading.Lock()


def _send(channel: Connection, message: Message) -> None:
    with _sending:  # progress may come from any thread of the fit
        channel.send(message)


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the worker decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(2, 1)  # the engine's C messages go to standard output, which belongs to the command
    with contextlib.suppress(OSError):  # elsewhere than on Linux there is no such file
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
