"""Roles for tests. They belong to the whole server, so each test cleans up after itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Server


@pytest.fixture
def no_roles(server: Server) -> Iterator[None]:
    """Hide the roles that the server has: others are free to be created."""
    server.template("genuine"), server.template("penstock")  # they have made the roles
    roles = ("message_store", "penstock_reader")
    for role in roles:
        server.administer("alter role {} rename to {}", role, f"hidden_{role}")
    yield
    for role in roles:
        server.administer("drop role if exists {}", role)
        server.administer("alter role {} rename to {}", f"hidden_{role}", role)


@pytest.fixture
def new_role(server: Server) -> Iterator[Callable[..., str]]:
    """Make a role that can log in and has no rights of its own. Ask for it before a database."""
    made: list[str] = []

    def create(rights: str = "") -> str:
        made.append(f"role_{len(made)}")
        server.administer(f"create role {{}} login {rights}", made[-1])
        return made[-1]

    yield create
    for role in made:
        server.administer("drop role {}", role)
