"""The generated parts of pages in docs/; `python -m tests.burnctl.pages` writes them."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from burnctl.cli import load
from burnctl.client import Client
from burnctl.commands import module_of, present
from burnctl.parser import Parser, parser_for
from burnd.contract import Param, Params
from burnd.contract import methods as contract_methods
from burnd.contract.reports import ACTIVITIES, DIMENSIONS, FINDINGS, Filters
from burnd.harness.registry import PRODUCTS
from burnd.settings.keys import KEYS

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS, API, CONFIGURATION = DOCS / "commands.md", DOCS / "python-api.md", DOCS / "configuration.md"
PROTOCOL = DOCS / "protocol.md"
BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
SHARED = 3  # commands that describe an option in the same words
PLAIN = ("id", "limit", "next", "offset", "after", "source", "session", "ts")  # parameters that the page describes once
FEW = 4  # choices that the page repeats; `methods` lists all
LINKS = {  # lists of choices that another page explains
    ", ".join(ACTIVITIES): "a [label](activity.md)",
    ", ".join(DIMENSIONS): "the [rows of a report](reports.md#rows---by)",
    ", ".join(FINDINGS): "a [finding](attribution.md#findings)",
}
USUAL_FLAGS = ["--json", "--no-color", "--no-start"]
REPORT_FLAGS = [*USUAL_FLAGS, "--no-wait", "--notes"]
FILTERS = "the filters"
FILTER_FLAGS = [f"--{name.removesuffix('s') if name == 'tags' else name}" for name in Filters.params if name != "tz"]


def commands() -> str:
    """Every command with its options; options that several commands share are described once."""
    parsers = {verb: parser_for(verb, load(verb)) for verb in present()}
    shared = _shared(parsers.values())
    groups: dict[str, list[str]] = {}
    verbs_of: dict[str, list[str]] = {}
    for verb, (group, _) in present().items():
        groups.setdefault(group, []).append(verb)
        verbs_of.setdefault(module_of(verb), []).append(verb)
    parts = [_shared_section(shared)]
    for group, verbs in groups.items():
        parts.append(f"## {group}\n")
        for verb in verbs:
            parts.append(f"### burnctl {verb}\n")
            about = present()[verb][1]
            main = _main_of(verbs_of[module_of(verb)], parsers)
            if verb == main or parsers[verb].description != parsers[main].description:
                parts.append(_section(about, parsers[verb], shared))
            else:
                parts.append(_difference(about, main, parsers[verb], parsers[main]))
    return "\n".join(parts)


def _shared_section(shared: Collection[str]) -> str:
    filters = f"The filters are those from `{FILTER_FLAGS[0]}` to `{FILTER_FLAGS[-1]}`"
    usual = f"the usual options are {', '.join(f'`{flag}`' for flag in USUAL_FLAGS)}"
    of_reports = f"the report options are these with {' and '.join(f'`{flag}`' for flag in REPORT_FLAGS[3:])}"
    about = "What a command shares with others is described here and only named there"
    ordered = sorted(shared, key=lambda option: option.startswith("`--"))
    return f"## Shared options\n\n{about}. {filters}; {usual}; {of_reports}.\n\n" + "".join(
        f"- {one}\n" for one in ordered
    )


def _section(about: str, parser: Parser, shared: Collection[str]) -> str:
    """What a command shows or does, its own arguments and options, and its actions."""
    lines = [f"{_capital(about)}\n"]
    if options := _list(parser, shared):
        lines.append("\n".join(options) + "\n")
    seen = set(shared)
    actions = []
    for action in actions_of(parser):
        actions += _action(action, seen)
        seen |= {*_options(action)}
    if actions:
        lines.append("\n".join(actions) + "\n")
    return "\n".join(lines)


def _action(parser: Parser, seen: Collection[str]) -> list[str]:
    """An action such as `guard install` as an item, its options below; those of an earlier action are only named."""
    places = [_flag(action) for action in _shown(parser) if not action.option_strings]
    name = " ".join([parser.prog.removeprefix("burnctl "), *places])
    options = [line for line in _list(parser, seen) if line.startswith("- `--") or not line.startswith("- `")]
    return [f"- `{name}`: {_capital(_first_sentence(parser.description or ''))}", *(f"  {line}" for line in options)]


def _list(parser: Parser, shared: Collection[str]) -> list[str]:
    own = [option for option in _options(parser) if option not in shared]
    flags = [_flag(action).split()[0] for action in _shown(parser) if _option(action) in shared]
    names = (FILTERS, FILTER_FLAGS), ("the report options", REPORT_FLAGS), ("the usual options", USUAL_FLAGS)
    for name, group in names:
        if set(group) <= set(flags):
            flags = [name, *(flag for flag in flags if flag not in group)]
    named = ", ".join(f"`{flag}`" if flag[0] in "-ABCDEFGHIJKLMNOPQRSTUVWXYZ" else flag for flag in flags)
    return [f"- {option}" for option in own] + ([f"- {named}"] if named else [])


def _formatted(text: str) -> str:
    """With flags as code."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [re.sub(r"(?<![\w-])-(?:-[a-z]+(?:-[a-z]+)*|[A-Z]\b)", r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) (?=[A-Z`-])", " ".join(text.split()))[0]


def _capital(text: str) -> str:
    text = _formatted(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?")) else ".")


def _main_of(verbs: list[str], parsers: dict[str, Parser]) -> str:
    """Of the verbs that one module implements, the one with the most options, the first of several."""
    return max(verbs, key=lambda verb: len(_flags(parsers[verb])))


def _flags(parser: Parser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings[-1:]]


def _difference(line: str, main: str, parser: Parser, other: Parser) -> str:
    """A short form of another verb, in one paragraph."""
    own, others = _flags(parser), _flags(other)
    lacks = [f"`{flag}`" for flag in others if flag not in own]
    arguments = [f"`{action.metavar}`" for action in parser._actions if not action.option_strings and action.metavar]
    if line.startswith("the same as "):
        return f"The same as `burnctl {main}`.\n"
    text = f"{line[0].upper()}{line[1:]}; options as for `{main}`"
    text += f" except {', '.join(lacks)}" if lacks else ""
    return f"{text}, with {', '.join(arguments)}.\n" if arguments else f"{text}.\n"


def _shared(parsers: Iterable[Parser]) -> Collection[str]:
    """The options and arguments that at least `SHARED` commands describe in the same words."""
    counts = Counter(option for parser in parsers for option in _options(parser))
    return dict.fromkeys(option for option, times in counts.items() if times >= SHARED).keys()


def _options(parser: Parser) -> list[str]:
    return [_option(action) for action in _shown(parser)]


def _shown(parser: Parser) -> list[argparse.Action]:
    """The options and arguments that help shows, apart from --help and the choice of an action."""
    left_out = (argparse._HelpAction, argparse._SubParsersAction)
    return [one for one in parser._actions if one.help != argparse.SUPPRESS and not isinstance(one, left_out)]


def _option(action: argparse.Action) -> str:
    text = _formatted(action.help or "")
    for choices, link in LINKS.items():
        text = text.replace(choices, link)
    return f"`{_flag(action)}`: {text}"


def _flag(action: argparse.Action) -> str:
    """Its longest name with the name of its value."""
    if not action.option_strings:
        return f"{action.metavar or action.dest.upper()}{' ...' if action.nargs in ('+', '*') else ''}"
    value = action.metavar or "|".join(map(str, action.choices or ())) or action.dest.replace("_", "-").upper()
    return action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {value}"


def actions_of(parser: Parser) -> list[Parser]:
    """The parsers of `config init`, `config show` and so on, without internal ones."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            shown = {choice.dest for choice in action._choices_actions}
            found += [chosen for name, chosen in action.choices.items() if name in shown]
    return found


def methods() -> str:
    """The methods of `Client` that are not methods of the socket or have another form, with what they do."""
    rows = ["| method | what it does |", "|---|---|"]
    for name, member in sorted(inspect.getmembers_static(Client)):
        if inspect.isfunction(member) and not name.startswith("_"):
            about = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            rows.append(f"| `{name}({_parameters(member)})` | {about} |")
    return "\n".join(rows) + "\n"


def _own_params(params: type[Params]) -> dict[str, Param]:
    """The parameters of a method without the filters of all reports."""
    shared = Filters.params if issubclass(params, Filters) else {}
    return {name: one for name, one in params.params.items() if name not in shared}


def _parameters(function: Callable[..., object]) -> str:
    shown = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        mark = "**" if parameter.kind is parameter.VAR_KEYWORD else "*" * (parameter.kind is parameter.VAR_POSITIONAL)
        optional = "=" if parameter.default is not parameter.empty else ""
        shown.append(f"{mark}{parameter.name}{optional}")
    return ", ".join(shown)


def configuration() -> str:
    """The table of settings, and of each agent product its names and variables."""
    rows = ["## Settings", ""]
    for key in KEYS:
        facts = [f"`{json.dumps(key.default)}`", *(["restart"] if key.restart else []), *filter(None, [_code(key.env)])]
        rows.append(f"- `{key.name}` ({', '.join(facts)}): {_sentence(key.about)}")
    rows += ["", "## Harnesses", "", "The agent products whose sessions are read:", ""]
    rows += ["| harness | `--source` | command | looked for in |", "|---|---|---|---|"]
    for product in PRODUCTS:
        places = ", ".join(f"`{path[1:]}`" for path in product.logs({}, "/~"))
        rows.append(f"| {product.title} | `{product.source}` | `{product.program}` | {places} |")
    rows += ["", "| variable | meaning |", "|---|---|"]
    rows += [f"| `{one.name}` | {_sentence(one.about)} |" for product in PRODUCTS for one in product.variables]
    return "\n".join(rows) + "\n"


def _code(text: str) -> str:
    return text and f"`{text}`"


def _sentence(text: str) -> str:
    """A text for a cell or item: without a capital and a full stop, angle brackets as they are."""
    text = text.replace("\n", " ")
    text = text[:1].lower() + text[1:] if text[1:2].islower() else text
    return text.removesuffix(".").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|").replace("*", "\\*")


def protocol(text: str) -> str:
    """docs/protocol.md with a list of parameters in each method's section, before its example."""
    parts = re.split(r"(?m)^(### `[a-z_.]+`\n)", text)
    for n in range(1, len(parts), 2):
        params = contract_methods()[parts[n].strip("# `\n")]
        body = re.sub(r"Parameters:.*\n\n(?:(?:- .*\n)+\n)?", "", parts[n + 1])
        before, example, after = body.partition("```json\n")
        parts[n + 1] = f"{before}{_parameter_list(params)}{example}{after}"
    return "".join(parts)


def _parameter_list(params: type[Params]) -> str:
    """The parameters of a method, those that are explained elsewhere in one line."""
    own = [*_own_params(params).values()]
    filters = {_meaning(one): one.wire for one in Filters.params.values()}
    as_filters = [one.wire for one in own if filters.get(_meaning(one)) == one.wire and one.default is None]
    own = [one for one in own if one.wire not in as_filters]
    explained = COMMANDS.read_text()
    plain = [one for one in own if one.wire in PLAIN and not 0 < len(one.choices) <= FEW and one.flag != "-A"]
    plain += [one for one in own if one not in plain and one.help in explained]
    rest = [one for one in own if one not in plain]
    lines = [f"- `{one.wire}`{_in_parentheses(one)}: {_meaning(one)}" for one in rest]
    names = [f"`{one.wire}`{_in_parentheses(one)}" for one in plain]
    names += [f"`{name}`" for name in as_filters]
    names += [f"[{FILTERS}](#reports)"] if issubclass(params, Filters) else []
    head = f"Parameters:{' ' if names else ''}{', '.join(names)}"
    return "\n".join([head, "", *lines, *([""] if lines else []), ""]) if lines or names else ""


def _in_parentheses(one: Param) -> str:
    """What a parameter is without a value, and its bounds."""
    facts = ["required"] if one.is_required else [] if one.default is None else [f"`{json.dumps(one.default)}`"]
    facts += [f"{one.least or 0:g} to {one.most:g}"] if one.most is not None and one.most < 1e6 else []
    return f" ({'; '.join(facts)})" if facts else ""


def _meaning(one: Param) -> str:
    words = (*one.choices, *filter(None, [one.others]))
    choices = ", ".join(f"`{word}`" for word in words) if len(words) <= FEW else ""
    about = re.sub(r"--([a-z]+)( [a-z]+)?", r"`\1\2`", one.help)  # a flag of burnctl is a parameter here
    return f"{about}{f': {choices}' if choices else ''}"


GENERATED: dict[Path, Callable[[], str]] = {COMMANDS: commands, API: methods, CONFIGURATION: configuration}


def page(path: Path) -> str:
    """The page as it should be: what was written by hand around what is generated."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{GENERATED[path]()}\n{END}{after}"


if __name__ == "__main__":
    for path in GENERATED:
        path.write_text(page(path))
    PROTOCOL.write_text(protocol(PROTOCOL.read_text()))
