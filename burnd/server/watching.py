"""What the daemon does for its clients between their questions: takes readings of quotas in, and watches budgets."""

from __future__ import annotations

import anyio

from burnd.budget_watch import BudgetWatch
from burnd.server.service import Service


async def watch(service: Service) -> None:
    """Runs for as long as the daemon does."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.quotas.run)
        if service.settings.budgets:
            tasks.start_soon(_watch_budgets, service)


async def _watch_budgets(service: Service) -> None:
    settings = service.settings
    budgets = BudgetWatch(
        service.pipeline,
        settings.budgets,
        settings.budget_command,
        look=service.ask,
        announce=lambda crossed: service.feed.say({"budget": crossed}),
        notices=service.notices,
    )
    with service.feed.following(lambda _turn: True) as follower:
        await budgets.run(follower.take)
