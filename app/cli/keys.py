"""`twincal keys`: the first key comes from here, since making one by REST needs one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from app.cli.database import in_transaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from app.registry.keys import ApiKey


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    keys = typer.Typer(no_args_is_help=True, help="Keys to the REST interface: make, list, revoke.")
    keys.command("create")(create)
    keys.command("list")(list_all)
    keys.command("revoke")(revoke)
    app.add_typer(keys, name="keys")


def create(
    scope: Annotated[
        Literal["read", "operate", "admin"],
        typer.Option(help="What the key may do; each may do what those before it may."),
    ],
    fleet: Annotated[str | None, typer.Option(help="The only fleet that exists for it; without it all do.")] = None,
    expires_in_days: Annotated[float | None, typer.Option(min=0.001, max=36500, help="Never without it.")] = None,
) -> None:
    """Make a key and print it, this once: only its SHA-256 is kept."""
    from app.registry.keys import create_key
    from app.telemetry import parse_fleet_id

    bound = None if fleet is None else parse_fleet_id(fleet, "--fleet")
    expires = None if expires_in_days is None else datetime.now(UTC) + timedelta(days=expires_in_days)

    async def made(connection: AsyncConnection) -> tuple[ApiKey, str]:
        return await create_key(connection, [scope], bound, expires)

    key, token = in_transaction(made)
    typer.echo(f"key {key.id}; its token, shown this once:", err=True)
    typer.echo(token)


def list_all() -> None:
    """List all keys, those expired and revoked too; never their tokens."""
    from app.registry.keys import list_keys

    async def found(connection: AsyncConnection) -> list[ApiKey]:
        keys: list[ApiKey] = []
        while page := await list_keys(connection, keys[-1].id if keys else None, 500):
            keys += page
        return keys

    for key in in_transaction(found):
        scopes = ",".join(sorted(key.scopes))
        typer.echo(f"{key.id}  {scopes:<18}  {key.fleet or '(all fleets)':<20}  {_state(key)}")


def revoke(identifier: Annotated[UUID, typer.Argument(metavar="ID", help="As `twincal keys list` shows it.")]) -> None:
    """Refuse a key from now on; the service notices within a second."""
    from app.registry.keys import revoke_key

    async def revoked(connection: AsyncConnection) -> ApiKey:
        return await revoke_key(connection, identifier)

    typer.echo(f"key {in_transaction(revoked).id} is revoked")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {key.revoked_at:%Y-%m-%d %H:%M:%SZ}"
    if key.expires_at is None:
        return "valid"
    verb = "expired" if key.expires_at <= datetime.now(UTC) else "expires"
    return f"{verb} {key.expires_at:%Y-%m-%d %H:%M:%SZ}"
