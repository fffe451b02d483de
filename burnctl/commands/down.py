"""`burnctl down`: stops burnd and waits until it is gone."""

from __future__ import annotations

from burnctl.client import Client
from burnctl.errors import NotRunning

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = "stops burnd and waits until it is gone. Nothing is lost: logs written meanwhile are read at the next start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_options: argparse.Namespace) -> int:
    from burnctl.daemon import stop

    try:
        pid = stop(Client())
    except NotRunning:
        print("burnd is not running")
    else:
        print(f"burnd (pid {pid}) has stopped")
    return 0
