"""Flags that several verbs share, so that they mean the same and read the same everywhere."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any


def reading(parser: argparse.ArgumentParser) -> None:
    """What every verb that reads from the daemon takes: --json, --no-color, --no-start."""
    as_json(parser)
    no_color(parser)
    no_start(parser)


def report(parser: argparse.ArgumentParser) -> None:
    """The flags of a report: those of `reading`, and --no-wait."""
    reading(parser)
    no_wait(parser)
    notes(parser)


def reading_rows(parser: argparse.ArgumentParser, rows: str) -> None:
    """The flags of a report that can be CSV as well."""
    either = parser.add_mutually_exclusive_group()
    as_json(either)
    either.add_argument("--csv", action="store_true", help=f"print the {rows} as CSV")
    no_color(parser)
    no_start(parser)
    no_wait(parser)
    notes(parser)


def notes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--notes", action="store_true", help="print every note on the numbers below the report")


def as_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--json", action="store_true", help="print the answer as JSON, for programs")


def no_color(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-color", action="store_true", help="print without colours (as with NO_COLOR)")


def no_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-start", action="store_true", help="do not start burnd when it is not running")


def no_wait(parser: argparse.ArgumentParser) -> None:
    """Adds --no-wait. Verbs that have it wait for the backfill at a terminal (`starting.reach`), unless it is given."""
    parser.add_argument(
        "--no-wait", action="store_true", help="do not wait while old logs are read: print what is recorded so far"
    )


def scan(parser: argparse.ArgumentParser) -> None:
    """Adds --scan, for verbs whose report is a summary."""
    parser.add_argument(
        "--scan", action="store_true", help="read the logs now, without burnd and without writing anything"
    )


def project(text: str) -> str:
    """A project as it was named: a folder becomes its full path, so that `.` means this one; a remote or name stays."""
    import os

    folder = os.path.expanduser(text)
    is_path = folder.startswith(("/", "./", "../"))  # also of one that is gone
    return os.path.abspath(folder) if is_path or os.path.isdir(folder) else text


def source(parser: argparse.ArgumentParser) -> None:
    from burnd.harness.registry import BY_SOURCE

    parser.add_argument("--source", metavar="SOURCE", help=f"only this harness: {', '.join(BY_SOURCE)}")


def sessions(parser: argparse.ArgumentParser) -> None:
    """What lists of sessions and searches can be narrowed by; `sessions_of` gives it as the client takes it."""
    parser.add_argument("--project", metavar="PROJECT", type=project, help="only this project; . is this folder's")
    source(parser)
    parser.add_argument(
        "--since", metavar="TIME", help="from then on: 24h, 7d, today, week, month, 2026-11, a date or time"
    )
    parser.add_argument("--until", metavar="TIME", help="up to then; a date is meant with all of its hours")


def sessions_of(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in ("project", "source", "since", "until")}
    return given | ({"tz": time_zone()} if options.since or options.until else {})


def filters(parser: argparse.ArgumentParser) -> None:
    """What every report can be narrowed by; `filters_of` gives them as the client takes them."""
    parser.add_argument(
        "--since", metavar="TIME", help="from then on: 24h, 7d, today, week, month, 2026-11, a date or time"
    )
    parser.add_argument("--until", metavar="TIME", help="up to then; a date is meant with all of its hours")
    parser.add_argument("--project", metavar="PROJECT", type=project, help="only this project; . is this folder's")
    parser.add_argument("--session", metavar="SESSION", help="only this session, its subagents and children")
    parser.add_argument("--workflow", metavar="ID", help="only what is stamped with this workflow")
    parser.add_argument("--agent", metavar="ID", help="only this agent: a stamped one, or a subagent")
    parser.add_argument("--tag", metavar="KEY=VALUE", action="append", type=tag, help="only what is stamped so")
    source(parser)
    parser.add_argument("--model", metavar="MODEL", help="only this model")
    parser.add_argument("--provider", metavar="NAME", help="only what this provider served")
    parser.add_argument("--branch", metavar="BRANCH", help="only this git branch")
    parser.add_argument("--activity", metavar="LABEL", help="only this kind of work: coding, testing, ...")
    parser.add_argument("--version", metavar="VERSION", help="only this release of a harness, like 2.1.4 or 2.1")


def filters_of(options: argparse.Namespace, *, days: bool = False) -> dict[str, Any]:
    """The filters that were given, with the caller's time zone where they name times or `days` are shown."""
    names = ("since", "until", "project", "session", "workflow", "agent", "source", "model", "provider", "branch")
    given = {name: getattr(options, name) for name in (*names, "activity", "version")}
    given = {name: value for name, value in given.items() if value is not None}
    if options.tag:
        given["tags"] = _tags(options.tag)
    if days or "since" in given or "until" in given:
        given["tz"] = time_zone()
    return given


def _tags(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Every one of them must fit, and no turn has two values of one tag."""
    tags = dict(pairs)
    for key, value in pairs:
        if tags[key] != value:
            from burnctl.errors import Usage

            raise Usage(f"--tag {key}={value} and --tag {key}={tags[key]} cannot both fit", "ask for one at a time")
    return tags


def up_to(most: int) -> Callable[[str], int]:
    """What takes a number from 1 on, as large as the daemon takes it."""

    def parsed(text: str) -> int:
        import argparse

        if not text.isdecimal() or not 0 < int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {most}")
        return int(text)

    return parsed


count = up_to(10_000)


def dollars(text: str) -> float:
    import argparse

    plain = text.removeprefix("$")
    if not plain.replace(".", "", 1).isdecimal() or len(plain) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is no amount of dollars")
    return float(plain)


def index(text: str) -> int:
    import argparse

    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)


def seconds(text: str) -> float:
    import argparse

    if not text.replace(".", "", 1).isdecimal() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return float(text)


def tag(text: str) -> tuple[str, str]:
    import argparse

    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def time_zone() -> str | int:
    """The caller's zone by its name, where the system says it; else as minutes east of UTC."""
    import os
    import time

    named = os.environ.get("TZ", "").lstrip(":")
    if not named:
        try:
            named = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
        except OSError:
            named = ""
    if named and os.path.exists(f"/usr/share/zoneinfo/{named}"):
        return named
    return time.localtime().tm_gmtoff // 60
