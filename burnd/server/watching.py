"""What the daemon does for its clients between their questions: takes in quotas, watches budgets, follows prices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from burnd import tasks
from burnd.budget_watch import BudgetWatch
from burnd.errors import NotNow
from burnd.server.service import Service
from burnd.tasks import BackgroundTask

_PRICES_S = 30.0


def watches(service: Service) -> Iterator[BackgroundTask]:
    """Each runs for as long as the daemon does."""
    yield BackgroundTask("taking in readings of limits", service.quotas.run)
    yield BackgroundTask("following prices", partial(_follow_prices, service))
    if service.settings.budgets:
        yield BackgroundTask("watching budgets", partial(_watch_budgets, service))


async def _follow_prices(service: Service) -> None:
    """Lets sums follow the user's own prices, which may set other context sizes apart."""
    while True:
        with contextlib.suppress(NotNow):  # until then reports read more turns one by one
            await service.pipeline.adopt_prices(service.prices.table)
        await tasks.sleep_until_tick(_PRICES_S)


async def _watch_budgets(service: Service) -> None:
    settings = service.settings
    budgets = BudgetWatch(
        service.home.crossings,
        settings.budgets,
        settings.budget_command,
        look=service.ask,
        announce=lambda crossed: service.feed.say({"budget": crossed}),
        notices=service.notices,
    )
    with service.feed.following(lambda _turn: True) as follower:
        await budgets.run(follower.take)
