"""`burnctl restart`: stops burnd if it runs, and starts it."""

from __future__ import annotations

from burnctl.client import Client
from burnctl.commands.up import bring_up
from burnctl.errors import NotRunning

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "stops burnd if it runs and starts it again, to apply new settings or a new version"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_options: argparse.Namespace) -> int:
    from burnctl.daemon import stop

    try:
        stop(Client())
    except NotRunning:
        print("burnd was not running")
    bring_up(Client())
    return 0
