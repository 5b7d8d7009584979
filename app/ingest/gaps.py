"""Messages that never reached us, by the numbers robots give theirs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from app.database.telemetry import BatchRow

_MAX_STREAMS: Final = 50_000


class SequenceGaps:
    """Watches the numbers of each stream of each boot.

    A broker whose queue overflows tells its publishers that all is well; only a hole in the numbers says otherwise.
    Reordered messages count as a hole at first: a hint, not a measurement.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str, str], int] = OrderedDict()

    def missing_before(self, row: BatchRow) -> int:
        """How many numbers were skipped between the last message of the same stream and boot, and this one."""
        if row.seq is None:
            return 0
        key = (row.robot, row.stream, row.boot_id)
        last = self._last.get(key)
        self._last[key] = max(row.seq, -1 if last is None else last)
        self._last.move_to_end(key)
        if len(self._last) > _MAX_STREAMS:
            self._last.popitem(last=False)
        return 0 if last is None else max(0, row.seq - last - 1)
