"""`burnctl completions`: scripts for shells, and the candidates they ask for."""

from __future__ import annotations

import argparse

from burnctl import flags
from burnctl.commands import present
from burnctl.errors import BurnctlError, UsageError
from burnd.contract import Params, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from burnctl.parser import Parser
    from burnd.contract import Param

HELP = (
    "prints a script that teaches a shell to complete commands, flags and their values: sessions, projects, models, "
    "agents, tags, activities and settings. Recorded names come from burnd when it runs; pressing Tab never starts it"
)
EXAMPLES = (
    "source <(burnctl completions bash)     # in ~/.bashrc",
    "source <(burnctl completions zsh)      # in ~/.zshrc, after compinit",
    "burnctl completions --install          # for the shell in $SHELL",
)

# zsh and fish quote names themselves; for bash burnctl does.
_BASH = r"""# bash completions of burnctl; use with: source <(burnctl completions bash)
_burnctl() {
    local reply
    COMPREPLY=()
    while IFS= read -r reply; do
        COMPREPLY+=("$reply")
    done < <(burnctl completions words --bash "$COMP_WORDBREAKS" -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _burnctl burnctl
"""

_ZSH = r"""#compdef burnctl
# zsh completions of burnctl; use with: source <(burnctl completions zsh), or as _burnctl in a folder of $fpath
_burnctl() {
    local -a found
    local word about
    while IFS=$'\t' read -r word about; do
        word=${word//\\/\\\\}
        found+=("${word//:/\\:}:$about")
    done < <(burnctl completions words -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    if (( ${#found} )); then _describe -V burnctl found; else _files; fi
}
if [[ $funcstack[1] == _burnctl ]]; then _burnctl "$@"; else compdef _burnctl burnctl; fi
"""

_FISH = r"""# fish completions of burnctl; save as ~/.config/fish/completions/burnctl.fish
function __burnctl_words
    set -l before (commandline -opc)
    set -l typed (commandline -ct | string replace -r '^[\'"]' '' | string unescape)
    burnctl completions words -- $before[2..-1] "$typed" 2>/dev/null
end
function __burnctl_has_none
    test (count (__burnctl_words)) -eq 0
end
complete -c burnctl -f -a '(__burnctl_words)'
complete -c burnctl -n __burnctl_has_none -F
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


# Where each shell looks, below the folder of a variable or else of the home.
_PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/burnctl"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_burnctl"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/burnctl.fish"),
}


class CompletionsFlags(Params):
    install: bool = param(default=False, help="install the script where the shell finds it")
    bash: str | None = param(default=None, help="bash's word breaks", metavar="BREAKS")
    word: list[str] = param(default=[], help="the words so far")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, CompletionsFlags, only=("install",))
    shells = parser.add_subparsers(dest="shell", metavar="SHELL")
    for shell in _SCRIPTS:
        script = shells.add_parser(shell, help=f"the script for {shell}", description=f"prints the script for {shell}")
        flags.add(script, CompletionsFlags, only=("install",))
        # Without this, the default behind the shell would undo an --install before it.
        script._option_string_actions["--install"].default = argparse.SUPPRESS
    # Called by the scripts: prints a candidate, a tab and its description; for bash the quoted candidate alone.
    words = shells.add_parser("words")
    flags.add(words, CompletionsFlags, only=("bash",))
    flags.place(words, CompletionsFlags, "word", nargs="*")


def run(options: argparse.Namespace) -> int:
    if options.install and options.shell != "words":
        return _install(options.shell)
    if options.shell is None:
        raise UsageError("completions: SHELL is missing", f"choose from {', '.join(_SCRIPTS)}")
    if options.shell in _SCRIPTS:
        print(_SCRIPTS[options.shell], end="")
        return 0

    if options.bash is not None:
        print("".join(f"{word}\n" for word in bash_candidates(options.word, options.bash)), end="")
        return 0
    for word, about in candidates(options.word):
        print(f"{word}\t{about}")
    return 0


def _install(shell: str | None) -> int:
    import os

    shell = shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _SCRIPTS:
        what = f"no completions for the shell in SHELL, {shell!r}" if shell else "SHELL does not name a shell"
        raise UsageError(f"completions: {what}", f"name one: burnctl completions {'|'.join(_SCRIPTS)} --install")
    variable, usual, name = _PLACES[shell]
    path = os.path.join(os.environ.get(variable) or os.path.join(os.path.expanduser("~"), usual), name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(_SCRIPTS[shell])
    except OSError as error:
        raise BurnctlError(f"cannot write {path}: {error.strerror}", f"or use: burnctl completions {shell}") from None
    print(f"wrote {path}; new shells use it")
    if shell == "zsh":
        print(f"if they do not, add this before compinit in ~/.zshrc: fpath=({os.path.dirname(path)} $fpath)")
    return 0


Candidate = tuple[str, str]  # and its description

ANSWER_S = 0.4  # a person waits
_MOST_SESSIONS, _MOST_STAMPS = 200, 1000


def candidates(words: Sequence[str]) -> list[Candidate]:
    """Candidates for the last of the words after `burnctl`, which may be empty."""
    *before, typed = words or [""]
    if not before:
        names = [(verb, line) for verb, (_, line) in present().items()] + [("help", "explain a command")]
    elif before[0] == "help":
        names = [(verb, line) for verb, (_, line) in present().items()] if len(before) == 1 else []
    else:
        names = _of_verb(before[0], before[1:], typed)
    return [(word, about) for word, about in names if word.startswith(typed)]


def bash_candidates(words: Sequence[str], breaks: str) -> list[str]:
    """Quoted candidates for bash. `words` are COMP_WORDS after `burnctl`, `breaks` is COMP_WORDBREAKS.

    bash splits words at `=`, `:` and `@` and replaces only what follows the last split, or the whole word after an
    opening quote.
    """
    *before, typed = _joined(words, set(breaks) - set(" \t\n'\""))
    start = typed[:1] if typed[:1] in ("'", '"') else ""
    plain = _unquoted(typed)
    if plain is None:
        return []
    names = candidates([*(_unquoted(word) or word for word in before), plain])
    if start:
        return [_within(start, word) for word, _ in names]
    last = max((at for at, char in enumerate(typed) if char in breaks and not _is_escaped(typed, at)), default=-1)
    present_part = _unquoted(typed[: last + 1]) or ""
    return [_escaped(word[len(present_part) :]) for word, _ in names]


def _joined(words: Sequence[str], breaks: set[str]) -> list[str]:
    """Joins the parts of words that bash split, except at the `=` after a flag."""
    merged: list[str] = []
    glue = False
    for word in words:
        is_break = bool(word) and set(word) <= breaks
        if is_break and word == "=" and merged and merged[-1].startswith("-"):
            merged.append("")
            glue = True
        elif merged and (glue or is_break):
            merged[-1] += word
            glue = is_break
        else:
            merged.append(word)
            glue = is_break
    return merged or [""]


def _unquoted(word: str) -> str | None:
    """A word without its opening quote and escapes; None if it has other quotes or an expansion."""
    quote = word[:1] if word[:1] in ("'", '"') else ""
    plain: list[str] = []
    chars = iter(word[len(quote) :])
    for char in chars:
        if (char == quote if quote else char in "'\"") or (quote != "'" and char in "$`"):
            return None
        if char == "\\" and quote != "'":
            following = next(chars, "")
            char = following if not quote or following in '$`"\\' else char + following
        plain.append(char)
    return "".join(plain)


def _is_escaped(word: str, at: int) -> bool:
    before = word[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _escaped(text: str) -> str:
    return "".join(char if char.isalnum() or char in "_-./:=@%+," or ord(char) > 127 else f"\\{char}" for char in text)


def _within(quote: str, text: str) -> str:
    """The text escaped for an open quote; bash adds the closing one unless the text ends with it."""
    if quote == "'":
        escaped = text.replace("'", "'\\''")
        return escaped[:-1] if text.endswith("'") else escaped
    escaped = "".join(f"\\{char}" if char in '$`"\\' else char for char in text)
    escaped = escaped.replace("!", "\"'!'\"")  # a backslash before it would stay
    return f'{escaped}"' if escaped.endswith('"') else escaped


def _of_verb(verb: str, before: Sequence[str], typed: str) -> list[Candidate]:
    from burnctl.cli import load
    from burnctl.parser import parser_for

    if "--" in before:
        return []  # another program's words
    try:
        parser = parser_for(verb, load(verb))
    except BurnctlError:
        return []
    return _of_parser(parser, before, typed)


def _of_parser(parser: Parser, before: Sequence[str], typed: str) -> list[Candidate]:
    places = [action for action in parser._actions if not action.option_strings]
    flags = {name: action for action in parser._actions for name in action.option_strings}
    awaiting: argparse.Action | None = None
    used = 0
    for at, word in enumerate(before):
        if awaiting is not None:
            awaiting = None
        elif word.startswith("-"):
            flag = flags.get(word)
            awaiting = flag if flag is not None and flag.nargs != 0 else None
        else:
            place = places[min(used, len(places) - 1)] if places else None
            if isinstance(place, argparse._SubParsersAction):
                subparser = place.choices.get(word)
                return _of_parser(subparser, before[at + 1 :], typed) if subparser else []
            used += 1
    if awaiting is not None:
        return _values(awaiting, typed)
    if typed.startswith("-"):
        return [
            (name, _line(a.help)) for name, a in flags.items() if a.help != argparse.SUPPRESS and name not in before
        ]
    if not places or (used >= len(places) and places[-1].nargs not in ("*", "+")):
        return []
    return _values(places[min(used, len(places) - 1)], typed)


def _values(action: argparse.Action, typed: str) -> list[Candidate]:
    if isinstance(action, argparse._SubParsersAction):
        return [(choice.dest, _line(choice.help)) for choice in action._choices_actions]
    one: Param | None = getattr(action, "param", None)
    if one is None:
        return [(str(choice), "") for choice in action.choices or ()]
    try:
        if one.choices:
            beginning = one.others.removesuffix("KEY")
            keys = _tag_keys() if beginning and typed.startswith(beginning) else []
            return [(word, "") for word in (*one.choices, beginning, *(beginning + key for key, _ in keys)) if word]
        if one.kind == "session":
            return _sessions()
        if one.kind == "tag":
            return _tags()
        if one.kind == "tag-key":
            return _tag_keys()
        if one.kind == "setting":
            return _settings(typed)
        return _rows(one.kind or one.name) if (one.kind or one.name) in _DIMENSIONS else []
    except BurnctlError:
        return []


_DIMENSIONS = ("model", "project", "agent", "branch", "provider")


def _sessions() -> list[Candidate]:
    import time

    from burnctl.client import Client
    from burnctl.render.names import last_name
    from burnctl.render.numbers import ago
    from burnctl.render.text import clean, cut

    with Client(timeout=ANSWER_S) as client:
        rows = client.sessions_list(limit=_MOST_SESSIONS).get("sessions") or []
    now = time.time() * 1000
    results = []
    for row in rows:
        words = (ago(row.get("updatedAt"), now), last_name(row.get("project")), str(row.get("title") or ""))
        results.append((row.get("sessionId"), cut(clean("  ".join(filter(None, words))), 60)))
    return _insertable(results)


def _rows(by: str) -> list[Candidate]:
    """Recorded models, projects, agents, ..., the costliest first."""
    from burnctl.client import Client
    from burnctl.render.numbers import number

    with Client(timeout=ANSWER_S) as client:
        rows = client.summary(by=by).get("rows") or []
    return _insertable([(row.get("key"), f"{number(row.get('turns'))} requests") for row in rows])


def _tags() -> list[Candidate]:
    from burnctl.client import Client

    with Client(timeout=ANSWER_S) as client:
        stamps = client.stamps_list(limit=_MOST_STAMPS).get("stamps") or []
    pairs = {f"{key}={value}": "" for stamp in reversed(stamps) for key, value in stamp["enrichment"].items()}
    return _insertable(list(pairs.items()))


def _tag_keys() -> list[Candidate]:
    return list(dict.fromkeys((tag.partition("=")[0], "") for tag, _ in _tags()))


def _settings(typed: str) -> list[Candidate]:
    """The settings; once something is typed also without their table, as in `config set plan`."""
    from burnctl.client import Client

    with Client(timeout=ANSWER_S) as client:
        rows = client.config_show().get("settings") or []
    names = [(row["key"], _line(row.get("says"))) for row in rows]
    short = [(name.partition(".")[2], about) for name, about in names] if typed else []
    every = [name for name, _ in short]
    return _insertable([*names, *((name, about) for name, about in short if every.count(name) == 1)])


def _insertable(found: Sequence[tuple[object, str]]) -> list[Candidate]:
    """Leaves out names that are empty, unprintable, or would be read as flags."""
    from burnctl.render.text import clean

    return [
        (name, about)
        for name, about in found
        if isinstance(name, str) and name and not name.startswith("-") and name.isprintable() and clean(name) == name
    ]


def _line(text: str | None) -> str:
    return (text or "").replace("\t", " ").replace("\n", " ")
