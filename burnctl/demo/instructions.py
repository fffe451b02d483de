"""The standing instructions of the demo's projects: what every session there begins with."""

from __future__ import annotations

_MINE = """# How I like to work

Small commits, each with its test. Say what you are not sure of. Ask before you delete anything.

## Style

Short functions with names that explain them. No comments that repeat the code.
"""

_SHOP = """# shop-api

The order service of the shop: a queue, a scheduler and some forty endpoints.

## Commands

- `npm test -- NAME` runs the tests of one part, `pytest jobs -q` those of the jobs.
- `make up` starts everything with made-up data.

## Rules

- Money is in cents, always an integer; only the edges format it.
- Times are UTC in the database and in logs.
- A job must be safe to run twice.

@docs/style.md

## History

The jobs were seven scripts once, then a scheduler. The checkout was rewritten twice: the first time for the new tax
rules, the second time because the first had read the clock wherever it pleased. The import came from another team and
still looks like it. None of this matters for most tasks, and all of it is read in every turn.
"""

_STYLE = """# Style

## Names

Functions are verbs, modules are nouns, booleans read as claims.

## Errors

An error says what happened, to which thing, and what to do.
"""

_AGENTS = """# shop-api for agents

Run `make up` first. Money is in cents. Tests before code.
"""

_PAYMENT = """# Payment

The provider's sandbox answers slowly: fake the clock in tests.
"""

_SERVERS = '{"mcpServers": {"tickets": {"command": "tickets-mcp"}, "designs": {"command": "designs-mcp"}}}\n'


def instructions() -> dict[str, str]:
    """Texts by their place on the demo's machine."""
    return {
        "claude/CLAUDE.md": _MINE,
        "you/shop-api/CLAUDE.md": _SHOP,
        "you/shop-api/docs/style.md": _STYLE,
        "you/shop-api/AGENTS.md": _AGENTS,
        "you/shop-api/src/payment/CLAUDE.md": _PAYMENT,
        "you/shop-api/.mcp.json": _SERVERS,
    }
