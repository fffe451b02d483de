"""The demo's machine: its folders, projects with instruction files, and logs."""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

from burnctl.demo.stories import stories
from burnd.harness.demo import Log, Story
from burnd.harness.product import Product
from burnd.harness.registry import BY_SOURCE, PRODUCTS

_ELSEWHERE = (
    "BURND_SOCKET",
    "RELAYBURN_CONTENT_STORE",
    "RELAYBURN_CONTENT_TTL_DAYS",
    *(variable.name for product in PRODUCTS for variable in product.variables[1:]),
)


class Machine:
    """Everything is below `folder`; nothing of the user's own is read or written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.environment = {
            "HOME": os.path.join(folder, "you"),
            "RELAYBURN_HOME": os.path.join(folder, "relayburn"),
            **{product.variables[0].name: self._home_of(product) for product in PRODUCTS},
            "XDG_CONFIG_HOME": os.path.join(folder, "config"),
        }

    def enter(self) -> None:
        """Moves this process, and all that it starts, to the machine."""
        os.environ.update(self.environment)
        for name in _ELSEWHERE:
            os.environ.pop(name, None)

    def write_logs(self, now: float) -> dict[str, Story]:
        """Writes the sessions of the last days, by their ids, and their instruction files."""
        for place, text in instructions().items():
            path = os.path.join(self.folder, place)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return {self._writer(story).write(*self._place(story, now)): story for story in stories()}

    def live_log(self, story: Story, clock: float) -> Log:
        """A session that can grow."""
        log: Log = self._writer(story).begin(*self._place(story, clock))
        return log

    def _writer(self, story: Story) -> ModuleType:
        return import_module(BY_SOURCE[story.harness].demo)

    def _place(self, story: Story, now: float) -> tuple[str, Story, str, float]:
        folder = self._home_of(BY_SOURCE[story.harness])
        return folder, story, os.path.join(self.folder, "you", story.project), now - story.ago_h * 3600

    def _home_of(self, product: Product) -> str:
        return os.path.join(self.folder, product.program)


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
