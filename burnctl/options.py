"""Flags that burnctl acts on itself, declared like the parameters of methods; `flags.add` takes both."""

from __future__ import annotations

from burnd.contract import Params, param


class Output(Params):
    """Of commands that ask the daemon."""

    json: bool = param(default=False, help="print the answer as JSON, for programs")
    csv: bool = param(default=False, help="print the rows as CSV")
    no_color: bool = param(default=False, help="print without colours (as with NO_COLOR)")
    no_start: bool = param(default=False, help="do not start burnd when it is not running")
    no_wait: bool = param(default=False, help="do not wait while old logs are read: print what is recorded so far")
    notes: bool = param(default=False, help="print every note on the numbers below the report")


class Scan(Params):
    """Of reports that are a summary."""

    scan: bool = param(default=False, help="read the logs now, without burnd and without writing anything")


class Summary(Params):
    """Of `summary`."""

    chart: bool = param(default=False, help="draw the cost of each day")


class Report(Params):
    """Of `report`."""

    output: str = param(help="the file to write; - is stdout", flag="-o --output", metavar="FILE")
    with_text: bool = param(default=False, help="include titles, commands and errors from the sessions")


class Tags(Params):
    """Of `tags`."""

    key: str | None = param(default=None, help="the tag; without one, a list of tags", metavar="KEY")


class Periods(Params):
    """Of `daily`, `weekly` and `monthly`."""

    all: bool = param(default=False, help="all periods, not only the last ones")
    breakdown: bool = param(default=False, help="a row for each model below its period")


class Session(Params):
    """Of commands about one session."""

    session: str | None = param(
        default=None,
        help="the start of an id or a part of a title; by default the last session of this folder, else the last one",
        kind="session",
        flag="",
    )
    last: bool = param(default=False, help="the session that was active last, in any folder")
    costliest: bool = param(default=False, help="the most expensive session of all")


class Sessions(Params):
    """Of `sessions`."""

    sort: str = param(default="time", help="the order: last written, or most expensive", choices=("time", "cost"))


class Why(Params):
    """Of `why`."""

    by: str | None = param(default=None, help="list the bill by", choices=("file", "command", "turn", "kind"))


class Limits(Params):
    """Of `limits`."""

    check: bool = param(default=False, help="exit with 1 when a budget is exceeded")


class Export(Params):
    """Of `export`."""

    format: str = param(default="jsonl", help="the format", choices=("jsonl", "csv", "parquet"))
    output: str | None = param(
        default=None, help="where to write: a file, or with parquet a folder", flag="-o --output", metavar="FILE"
    )
    machine: str | None = param(default=None, help="a name for this machine (its host name)", metavar="NAME")


class Pictures(Params):
    """Of `flow`."""

    svg: str | None = param(default=None, help="write an SVG picture to FILE (- is stdout)", metavar="FILE")
    mermaid: bool = param(default=False, help="print a Mermaid flowchart")


class Search(Params):
    """Of `search`."""

    memory: bool = param(default=False, help="search instruction and memory files instead of sessions")
    context: int | None = param(
        default=None, help="show this many messages before and after each hit", kind="index", flag="-C"
    )


class Show(Params):
    """Of `show`."""

    limit: int = param(default=500, help="at most this many messages", kind="count", most=10_000)
    raw: bool = param(default=False, help="print arguments, results and thinking as well, 64 KiB of each")


class Tail(Params):
    """Of `tail`."""

    model: str | None = param(default=None, help="only this model", kind="model")


class Stamp(Params):
    """Of `stamp`."""

    stdin: bool = param(default=False, help="read many, one JSON object a line; all or none are taken")


class Stamps(Params):
    """Of `stamps`."""

    tag: str | None = param(default=None, help="only stamps with this tag", metavar="KEY[=VALUE]")


class Guard(Params):
    """Of `guard install` and `guard uninstall`."""

    source: str | None = param(default=None, help="only this harness; by default all that are found", kind="source")


class Allow(Params):
    """Of `guard allow`."""

    seconds: int | None = param(
        default=None, help="for how long: 30m, 2h, 1d (for good)", kind="period", flag="--for", metavar="TIME"
    )


class Forget(Params):
    """Of `forget`."""

    yes: bool = param(default=False, help="do not ask")


class Pricing(Params):
    """Of `pricing update`."""

    file: str | None = param(
        default=None, help="take this list instead, without the network", flag="--from", metavar="FILE"
    )


class Setting(Params):
    """Of `config`."""

    key: str = param(help="the setting, such as content.store", kind="setting", metavar="KEY")
    value: str = param(help="""a word, or any TOML value: 30, true, '["a", "b"]'""", metavar="VALUE")


class Wrapper(Params):
    """Of `claude` and `run`."""

    tag: list[str] = param(default=[], help="a tag; may be given again", kind="tags", metavar="KEY=VALUE")
    quiet: bool = param(default=False, help="do not print at the end what the session cost")
    arguments: list[str] = param(
        default=[], help="Claude Code's own arguments, passed on untouched", flag="", metavar="-- ARGUMENTS"
    )
    command: list[str] = param(default=[], help="the harness and its arguments", flag="", metavar="-- COMMAND")


class Service(Params):
    """Of `service`."""

    print: bool = param(default=False, help="only show what would be written, and where")
    hardened: bool = param(default=False, help="systemd: also what needs user namespaces")
    socket: bool = param(default=False, help="systemd: also let it hold the socket")
    update_prices: bool = param(default=False, help="systemd: also fetch the newest prices once a week")
    lines: int = param(default=100, help="number of lines", kind="count", most=10_000, flag="-n --lines")
    follow: bool = param(default=False, help="go on as lines come", flag="-f --follow")
    manager: str | None = param(default=None, help="service manager (this system's)", choices=("systemd", "launchd"))


class Up(Params):
    """Of `up`."""

    look: bool = param(default=False, help="show the overview also if burnd runs already, or in a script")


class Demo(Params):
    """Of `demo`."""

    keep: bool = param(default=False, help="leave it running, and print how to use it")


class Completions(Params):
    """Of `completions`."""

    install: bool = param(default=False, help="install the script where the shell finds it")
    bash: str | None = param(default=None, help="bash's word breaks", metavar="BREAKS")
    word: list[str] = param(default=[], help="the words so far")
