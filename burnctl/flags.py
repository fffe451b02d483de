"""Flags of verbs, made from the parameters of methods or declared here.

`add` adds the flags of a table to a parser, `given` reads them back.
"""

from __future__ import annotations

from burnd.contract import Params, param
from burnd.contract.reports import FLEET_DIMENSIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from burnctl.client import Client
    from burnd.contract import Param


class Output(Params):
    json: bool = param(default=False, help="print the answer as JSON, for programs")
    csv: bool = param(default=False, help="print the rows as CSV")
    no_color: bool = param(default=False, help="print without colours (as with NO_COLOR)")
    no_start: bool = param(default=False, help="do not start burnd when it is not running")
    no_wait: bool = param(default=False, help="do not wait while old logs are read: print what is recorded so far")
    notes: bool = param(default=False, help="print every note on the numbers below the report")


class Scan(Params):
    scan: bool = param(default=False, help="read the logs now, without burnd and without writing anything")


class Fleet(Params):
    fleet: str | None = param(
        default=None,
        help="over all machines that push to this target: clickhouse://HOST/DATABASE, or a folder of segments",
        metavar="TARGET",
    )


class FleetRows(Params):
    by: str | None = param(
        default=None, help="with --fleet: a row for each machine, user or team as well", choices=FLEET_DIMENSIONS
    )


_METAVARS = {
    "time": "TIME",
    "project": "PROJECT",
    "session": "SESSION",
    "message": "ID",
    "agent": "NAME",
    "source": "SOURCE",
    "model": "MODEL",
    "tag": "KEY=VALUE",
    "count": "N",
    "index": "N",
    "dollars": "USD",
    "days": "AGE",
    "seconds": "SECONDS",
}


def add(
    parser: argparse._ActionsContainer,
    *tables: type[Params],
    only: Collection[str] = (),
    skip: Collection[str] = (),
    usual: Mapping[str, object] = {},
) -> None:
    """Adds a flag for each parameter of the tables that has one.

    `usual` are defaults of this verb, for its help.
    """
    for table in tables:
        for name, one in table.params.items():
            if one.flag and name not in skip and (not only or name in only):
                # methods get only parameters that were given
                is_own = table.__module__.startswith("burnctl")
                default = one.default if is_own and not one.is_required else None
                facts = {"dest": name, "default": default, "required": is_own and one.is_required}
                _add(parser, one, one.flag.split(), facts, usual.get(name))


def reading(parser: argparse._ActionsContainer) -> None:
    add(parser, Output, only=("json", "no_color", "no_start"))


def report(parser: argparse._ActionsContainer) -> None:
    add(parser, Output, skip=("csv",))


def reading_rows(parser: argparse.ArgumentParser) -> None:
    """The flags of a report that can be CSV."""
    either = parser.add_mutually_exclusive_group()
    add(either, Output, only=("json", "csv"))
    add(parser, Output, skip=("json", "csv"))


def place(parser: argparse._ActionsContainer, table: type[Params], name: str, dest: str = "", **facts: Any) -> None:
    """Adds a parameter as an argument without a flag."""
    _add(parser, table.params[name], [dest or name], facts)


def _add(
    parser: argparse._ActionsContainer, one: Param, names: list[str], facts: dict[str, Any], usual: object = None
) -> None:
    text = one.help
    if one.type.startswith("bool"):
        facts["action"] = "store_true"
    else:
        facts.setdefault(
            "metavar", one.metavar or _METAVARS.get(one.kind) or (None if one.choices else one.name.upper())
        )
        facts["type"] = _reader(one)
        if one.kind in ("tag", "tags", "projects"):
            facts["action"] = "append"
        if one.choices and not one.others and one.kind != "source":
            facts["choices"] = one.choices
        if facts["metavar"] and one.choices:
            text += f": {', '.join(one.choices)}{f' or {one.others}' if one.others else ''}"
        usual_value = usual or (one.default if one.name != "limit" or facts.get("default") else None)
        text += f" ({usual_value})" if isinstance(usual_value, str | int | float) and usual_value != "" else ""
    parser.add_argument(*names, help=text, **facts).param = one  # type: ignore[attr-defined]


def _reader(one: Param) -> Callable[[str], Any]:
    if one.kind in ("count", "index"):
        return lambda text: number(text, int(one.least or 0), None if one.most is None else int(one.most))
    readers: dict[str, Callable[[str], Any]] = {
        "project": project,
        "projects": project,
        "source": source,
        "tag": tag,
        "dollars": dollars,
        "days": lambda text: duration(text, "d"),
        "seconds": lambda text: duration(text, "s"),
    }
    return readers.get(one.kind, str)


def given(chosen: argparse.Namespace, table: type[Params]) -> dict[str, Any]:
    """The parameters that were given as flags, with the time zone if there are times."""
    values: dict[str, Any] = {name: getattr(chosen, name, None) for name in table.params}
    values = {name: value for name, value in values.items() if value is not None and value is not False}
    if "tags" in values:
        tags = dict(values["tags"])
        for key, value in values["tags"]:
            if tags[key] != value:
                from burnctl.errors import UsageError

                raise UsageError(
                    f"--tag {key}={value} and --tag {key}={tags[key]} exclude each other", "give one at a time"
                )
        values["tags"] = tags
    if "tz" in table.params and ("since" in values or "until" in values):
        values["tz"] = time_zone()
    return values


def ask(client: Client, table: type[Params], chosen: argparse.Namespace, **own: Any) -> dict[str, Any]:
    """The answer of a method with the parameters given as flags; `own` values that are not None replace them."""
    return client.ask(table, given(chosen, table) | {name: value for name, value in own.items() if value is not None})


def project(text: str) -> str:
    """A project: folders become full paths; remotes and names stay."""
    import os

    folder = os.path.expanduser(text)
    is_path = folder.startswith(("/", "./", "../"))  # also of a deleted one
    return os.path.abspath(folder) if is_path or os.path.isdir(folder) else text


def source(text: str) -> str:
    """A harness by any of its names: `claude` is Claude Code."""
    from burnd.harness.registry import PRODUCTS, SOURCES, source_of

    if (name := source_of(text)) in SOURCES:
        return name
    from difflib import get_close_matches

    close = get_close_matches(text.lower(), (*SOURCES, *(product.program for product in PRODUCTS)), 1)
    hint = f"did you mean {source_of(close[0])}" if close else f"one of {', '.join(SOURCES)}"
    raise _invalid(f"unknown harness {text!r}", hint)


def number(text: str, least: int = 0, most: int | None = None) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < least or (most is not None and int(text) > most):
        raise _invalid(f"{text!r} is not a number from {least} {f'to {most}' if most is not None else 'on'}")
    return int(text)


def dollars(text: str) -> float:
    plain = text.removeprefix("$")
    if not plain.replace(".", "", 1).isdecimal() or len(plain) > 12:
        raise _invalid(f"{text!r} is not an amount of dollars")
    return float(plain)


def duration(text: str, unit: str) -> float:
    """A duration such as 30m, 2h, 1d or 2w as a number of `unit`s, which is also the default unit."""
    amount, its_unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS else (text, unit)
    if not amount.replace(".", "", 1).isdecimal() or len(amount) > 9:
        raise _invalid(f"{text!r} is not a duration", "for example 30m, 12h, 30d or 2w")
    value = float(amount) * _SECONDS[its_unit] / _SECONDS[unit]
    return int(value) if value.is_integer() else value


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise _invalid(f"{text!r} is not KEY=VALUE")
    return key, value


def _invalid(what: str, hint: str = "") -> Exception:
    import argparse

    return argparse.ArgumentTypeError(f"{what}; {hint}" if hint else what)


def time_zone() -> str | int:
    """The local zone by its name, or as minutes east of UTC."""
    import os
    import time

    zone = os.environ.get("TZ", "").lstrip(":")
    if not zone:
        try:
            zone = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
        except OSError:
            zone = ""
    if zone and os.path.exists(f"/usr/share/zoneinfo/{zone}"):
        return zone
    return time.localtime().tm_gmtoff // 60
