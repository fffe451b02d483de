"""`burnctl completions`: scripts that let a shell complete verbs, flags, session ids and models."""

from __future__ import annotations

from burnctl import flags
from burnctl import options as own

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

HELP = (
    "prints a script that teaches a shell to complete commands, flags, session ids and models. Session ids and models "
    "come from burnd when it runs; pressing Tab never starts it"
)
EXAMPLES = (
    "source <(burnctl completions bash)     # in ~/.bashrc",
    "source <(burnctl completions zsh)      # in ~/.zshrc, after compinit",
    "burnctl completions fish --install",
)

# Names from logs need quoting: zsh and fish do it themselves, for bash burnctl does it.
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


# Where each shell looks for completions of a user, below the folder of a variable or else of the home.
_PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/burnctl"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_burnctl"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/burnctl.fish"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shells = parser.add_subparsers(dest="shell", required=True, metavar="SHELL")
    for shell in _SCRIPTS:
        script = shells.add_parser(shell, help=f"the script for {shell}", description=f"prints the script for {shell}")
        flags.add(script, own.Completions, only=("install",))
    # For the scripts: one candidate a line, a tab and its description. For bash, only the quoted candidate.
    words = shells.add_parser("words")
    flags.add(words, own.Completions, only=("bash",))
    flags.place(words, own.Completions, "word", nargs="*")


def run(options: argparse.Namespace) -> int:
    if options.shell in _SCRIPTS and options.install:
        return _install(options.shell)
    if options.shell in _SCRIPTS:
        print(_SCRIPTS[options.shell], end="")
        return 0
    from burnctl.completing import bash_candidates, candidates

    if options.bash is not None:
        print("".join(f"{word}\n" for word in bash_candidates(options.word, options.bash)), end="")
        return 0
    for word, about in candidates(options.word):
        print(f"{word}\t{about}")
    return 0


def _install(shell: str) -> int:
    import os

    from burnctl.errors import BurnctlError

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
