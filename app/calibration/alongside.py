"""Work that something else goes on beside: a heartbeat, a watch for cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

_T = TypeVar("_T")


async def alongside(work: Coroutine[Any, Any, _T], companion: Coroutine[Any, Any, NoReturn]) -> _T:
    """The result of `work`; the companion runs as long, and when it fails both end."""
    main, other = asyncio.create_task(work), asyncio.create_task(companion)
    try:
        await asyncio.wait({main, other}, return_when=asyncio.FIRST_COMPLETED)
        return main.result() if main.done() else other.result()
    finally:
        await cancelled(main, other)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, whatever they end with."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
