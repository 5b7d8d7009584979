"""Who is asking: bearer keys with scopes, some bound to one fleet.

What a fleet-bound key may not see it can't tell from what doesn't exist: both are 404.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from app.api.errors import ForbiddenError, UnauthenticatedError
from app.errors import NotFoundError
from app.registry import keys
from app.registry.keys import Scope
from app.telemetry import FleetId

_IMPLIED: Final[dict[Scope, frozenset[Scope]]] = {
    "read": frozenset({"read"}),
    "operate": frozenset({"read", "operate"}),
    "admin": frozenset({"read", "operate", "admin"}),
}

_CACHE_S: Final = 0.5
"""A key is looked up again after this, well within the second a revocation may take."""

_CACHE_SIZE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking.

    Attributes:
        name: as the audit trail and idempotency keys know it.
        scopes: what it may do; each holds those below it.
        fleet: the only fleet that exists for it; None: all do.
    """

    name: str
    scopes: frozenset[Scope]
    fleet: FleetId | None

    def require(self, scope: Scope) -> None:
        """Check that it may do what needs `scope`.

        Raises:
            ForbiddenError: if not.
        """
        if scope not in self.scopes:
            raise ForbiddenError(f"this key has no scope {scope!r}, only {', '.join(sorted(self.scopes))}")

    def sees(self, fleet: FleetId) -> bool:
        """Whether things of `fleet` exist for it."""
        return self.fleet is None or self.fleet == fleet

    def require_fleet(self, fleet: FleetId) -> None:
        """Check that `fleet` exists for it.

        Raises:
            NotFoundError: if not, in the words for a fleet that isn't there at all.
        """
        if not self.sees(fleet):
            raise NotFoundError("fleet", fleet)


LOCAL: Final = Principal("local", _IMPLIED["admin"], None)
"""Whoever asks a service on loopback that needs no key."""


@dataclass(slots=True)
class Authenticator:
    """Turns keys into principals, asking the database at most twice a second for each.

    Attributes:
        engine: the database.
        keyless: who a request without a key is; None: nobody, it is refused.
    """

    engine: AsyncEngine
    keyless: Principal | None
    _known: OrderedDict[bytes, tuple[float, Principal]] = field(default_factory=OrderedDict)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Who sent this `Authorization` header.

        Raises:
            UnauthenticatedError: without a valid key.
        """
        if authorization is None:
            if self.keyless is None:
                raise UnauthenticatedError("no key: send Authorization: Bearer <key> (twincal keys create makes one)")
            return self.keyless
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise UnauthenticatedError("Authorization must be: Bearer <key>")
        # By its hash, so that no memory dump holds a key.
        fingerprint = hashlib.sha256(token.encode()).digest()
        return self._remembered(fingerprint) or await self._look_up(token, fingerprint)

    def _remembered(self, fingerprint: bytes) -> Principal | None:
        known = self._known.get(fingerprint)
        return known[1] if known is not None and known[0] > time.monotonic() else None

    async def _look_up(self, token: str, fingerprint: bytes) -> Principal:
        asked = time.monotonic()  # before the question, so that its answer isn't taken for newer than it is
        async with self.engine.connect() as connection:
            key = await keys.authenticate(connection, token)
        if key is None:
            self._known.pop(fingerprint, None)
            raise UnauthenticatedError("the key is unknown, expired or revoked")
        scopes = frozenset[Scope]().union(*(_IMPLIED[scope] for scope in key.scopes))
        principal = Principal(f"key:{key.id}", scopes, key.fleet)
        self._known[fingerprint] = (asked + _CACHE_S, principal)
        self._known.move_to_end(fingerprint)
        if len(self._known) > _CACHE_SIZE:
            self._known.popitem(last=False)
        return principal
