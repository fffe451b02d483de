"""Reads a shell command: its family (testing, git, deps, ...) and its verb, the short name used in reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from burnd.classify.shell_programs import (
    ANY_USE,
    FLAGGED,
    RUNNERS,
    SCRIPT_RUNNERS,
    SUBCOMMANDS,
    canonical,
    positionals,
    subcommand,
    word_set,
)
from burnd.classify.shell_syntax import RESERVED, simple_commands

UNREADABLE: Final = "(shell)"
COMMAND_LIMIT: Final = 64 * 1024
"""Characters; a longer command contains a file."""

_NESTING_LIMIT: Final = 5
_WRAPPER_LIMIT: Final = 16

_PROGRAM_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
_SETUP: Final = word_set(
    "cd pushd popd export set unset source true false sleep shopt umask trap alias local readonly declare"
)
"""Commands that prepare another one."""


class ShellCommand(NamedTuple):
    """The verb has the program and its subcommands."""

    family: str | None
    verb: str


_UNREAD: Final = ShellCommand(None, UNREADABLE)


def family(command: str) -> str | None:
    return read(command).family


def verb(command: str) -> str:
    return read(command).verb


def read(command: str) -> ShellCommand:
    """The first part with a family, else the first part with a name.

    A verb reads back as itself, so labels can be recomputed where only verbs are stored.
    """
    best, best_weight = _UNREAD, 0
    for argv in _invocations(command, 0) if command != UNREADABLE else ():
        reading = _read_one(argv)
        if reading.family:
            return reading
        weight = 0 if reading.verb == UNREADABLE else 1 if reading.verb in _SETUP else 2
        if weight > best_weight:
            best, best_weight = reading, weight
    return best


def runs(command: str) -> Iterator[tuple[str, ...]]:
    """Without flags."""
    for program, *args in _invocations(command, 0):
        name = base_name(program)
        yield name, *(word for _, word in positionals(canonical(name), args))


def _invocations(text: str, depth: int) -> Iterator[list[str]]:
    """Without wrappers."""
    for words in simple_commands(text[:COMMAND_LIMIT]):
        argv = without_assignments(words)
        for _ in range(_WRAPPER_LIMIT):
            inner = unwrap(argv) if argv else None
            if inner is None:
                break
            if runs_elsewhere(argv):
                yield argv  # the name, unless the wrapped command has a family
            if isinstance(inner, str):
                if depth < _NESTING_LIMIT:
                    yield from _invocations(inner, depth + 1)
                argv = []
                break
            argv = inner
        if argv:
            yield argv


def _read_one(argv: Sequence[str]) -> ShellCommand:
    base, args = base_name(argv[0]), argv[1:]
    if base in RESERVED or not _PROGRAM_NAME.fullmatch(base):
        return _UNREAD
    program = canonical(base)
    if runner := RUNNERS.get(program):
        family_name, words = runner(program, args)
        return ShellCommand(family_name, " ".join((base, *words)))
    phrase = subcommand(program, args)
    verb_name = f"{base} {phrase}".rstrip()
    rule = FLAGGED.get(f"{program} {phrase}".rstrip())
    if rule is None:
        return ShellCommand(SUBCOMMANDS.get(program, {}).get(phrase) or ANY_USE.get(program), verb_name)
    if rule.leading_only:
        first, _ = next(positionals(program, args), (len(args), ""))
        args = args[:first]
    choice = next((choice for choice in rule.choices if not choice.spellings.isdisjoint(args)), None)
    return (
        ShellCommand(choice.family, f"{verb_name} {choice.flag}") if choice else ShellCommand(rule.otherwise, verb_name)
    )


# `sudo`, `env`, `npx`, `uv run`, `bash -c` and the like

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_VERSION: Final = re.compile(r"(?<=.)@[^/@]*$")
_LEVEL: Final = re.compile(r"-[0-9]+")

Act = Literal["pass", "pass value", "script", "module", "nothing", "unknown"]


class Wrapper(NamedTuple):
    """`is_remote`: it runs the command in a container or on a host. `joins`: it passes the rest to a shell."""

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    scripts: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    lookups: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    versioned: bool = False
    runs_operand: bool = True
    is_remote: bool = False
    joins: bool = False

    def act(self, option: str) -> Act:
        """`nothing`: no command is run."""
        if option.startswith("--") and "=" in option:
            return "pass"
        whole = self._act_of_one(option)
        if whole != "unknown" or option.startswith("--"):
            return whole
        # short options written together, `-lc`, or with their value attached, `-n1`
        for place, letter in enumerate(option[1:], start=2):
            act = self._act_of_one(f"-{letter}")
            if act == "pass value":
                return "pass" if place < len(option) else act
            if act != "pass":
                return act
        return "pass"

    def _act_of_one(self, option: str) -> Act:
        if option in self.flags:
            return "pass"
        if option in self.valued:
            return "pass value"
        if option in self.scripts:
            return "script"
        if option in self.modules:
            return "module"
        return "nothing" if option in self.lookups else "unknown"


def _wrapper(
    flags: str = "", valued: str = "", *, scripts: str = "", modules: str = "", lookups: str = "", **rest: Any
) -> Wrapper:
    return Wrapper(word_set(flags), word_set(valued), word_set(scripts), word_set(modules), word_set(lookups), **rest)


_SHELL: Final = _wrapper(
    "-a -b -e -f -h -i -k -l -m -n -p -r -s -t -u -v -x -B -C -E -H -P -T"
    " --login --norc --noprofile --posix --verbose --interactive",
    "-o -O --rcfile --init-file",
    scripts="-c",
    runs_operand=False,
)
_PYTHON: Final = _wrapper("-b -B -d -E -i -I -O -OO -P -q -s -S -u -v -x", "-W -X", modules="-m", runs_operand=False)
_NODE_PACKAGE: Final = _wrapper(
    "-y --yes -q --quiet -s --silent --no --no-install --prefer-offline --prefer-online --offline --bun",
    "-p --package -w --workspace --prefix -C --dir --filter -F --cwd",
    scripts="-c --call",
    versioned=True,
)
_PYTHON_PACKAGE: Final = "--with --with-editable --with-requirements --from -p --python --index --index-url"
_UV: Final = (
    f"{_PYTHON_PACKAGE} --extra --group --only-group --no-group --package --project --directory --env-file"
    " --extra-index-url --default-index --refresh-package --color -P --upgrade-package"
)
_UV_FLAGS: Final = (
    "--all-extras --all-groups --dev --no-dev --only-dev --frozen --locked --no-sync --isolated --active"
    " --exact --no-project --no-env-file --offline --no-cache -n -q --quiet -v --verbose --refresh"
    " --all-packages --no-config --managed-python --no-progress -U --upgrade"
)

_CONTAINER: Final = _wrapper(
    "-d --detach -i --interactive -t --tty -T --no-TTY --no-tty --rm --privileged --init --no-deps --build"
    " --service-ports -P --publish-all --read-only --use-aliases --quiet-pull -q --quiet"
    " --remove-orphans --no-healthcheck --stdin",
    "-e --env --env-file -u --user -w --workdir -v --volume --name --entrypoint -p --publish --network --net --platform"
    " --mount --index -l --label -m --memory --cpus --shm-size --gpus --add-host --cap-add --pull --ipc --ulimit"
    " --detach-keys -c --container -n --namespace --tmpfs --security-opt -h --hostname --restart --scale",
    operands=1,
    is_remote=True,
)

WRAPPERS: Final[dict[str, Wrapper]] = {
    **dict.fromkeys(("docker run", "docker exec", "docker compose run", "docker compose exec"), _CONTAINER),
    **dict.fromkeys(("docker container run", "docker container exec"), _CONTAINER),
    **dict.fromkeys(("docker-compose run", "docker-compose exec", "kubectl exec"), _CONTAINER),
    "ssh": _wrapper(
        "-4 -6 -A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -V -v -X -x -Y -y",
        "-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -P -p -Q -R -S -W -w",
        operands=1,
        is_remote=True,
        joins=True,
    ),
    **dict.fromkeys(("bash", "sh", "zsh", "dash", "ksh", "fish"), _SHELL),
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    **dict.fromkeys(("npx", "bunx", "pnpx", "bun x", "npm exec", "npm x"), _NODE_PACKAGE),
    **dict.fromkeys(("pnpm exec", "pnpm dlx", "yarn exec", "yarn dlx"), _NODE_PACKAGE),
    "env": _wrapper(
        "-i --ignore-environment -0 --null -v --debug -",
        "-u --unset -C --chdir",
        scripts="-S --split-string",
        assigns=True,
    ),
    "cross-env": _wrapper(assigns=True),
    "dotenv": _wrapper("-o -q", "-e -f -c -v -p"),
    "direnv exec": _wrapper(operands=1),
    "sudo": _wrapper(
        "-A -b -E -H -n -P -S -i -s --preserve-env --non-interactive --set-home --stdin --login --shell",
        "-u -g -h -p -C -D -R -r -t -T -U --user --group --host --prompt --chdir --chroot --close-from",
        lookups="-l -v -k -K -e -V --list --validate --edit",
        assigns=True,
    ),
    "doas": _wrapper("-n -s", "-u -C"),
    "time": _wrapper("-p -v -a -l -h --portability --verbose --append", "-f -o --format --output", assigns=True),
    "timeout": _wrapper("-v --verbose --foreground --preserve-status", "-k -s --kill-after --signal", operands=1),
    **dict.fromkeys(("nohup", "builtin", "chronic", "unbuffer", "corepack"), _wrapper()),
    "command": _wrapper("-p", lookups="-v -V"),
    "exec": _wrapper("-c -l", "-a"),
    "setsid": _wrapper("-c -f -w --ctty --fork --wait"),
    "nice": _wrapper("", "-n --adjustment"),
    "ionice": _wrapper("-t --ignore", "-c -n --class --classdata"),
    "stdbuf": _wrapper("", "-i -o -e --input --output --error"),
    "caffeinate": _wrapper("-d -i -m -s -u", "-t -w"),
    "xvfb-run": _wrapper("-a --auto-servernum", "-e -f -n -s -w --server-args --server-num --error-file"),
    "xargs": _wrapper(
        "-0 -r -t -p -x -o --null --no-run-if-empty --verbose --interactive --exit",
        "-n -I -P -L -d -s -E -a -J -R --max-args --max-procs --max-lines --delimiter --replace --arg-file",
    ),
    "uv run": _wrapper(_UV_FLAGS + " -s --script", _UV, modules="-m --module"),
    "uvx": _wrapper(_UV_FLAGS, _UV, versioned=True),
    "poetry run": _wrapper("-q -v --quiet --no-ansi", "-C --directory -P --project"),
    "pdm run": _wrapper("-s --site-packages --no-isolation", "-p --project --venv"),
    "pipenv run": _wrapper(),
    "pipx run": _wrapper("-q --quiet --no-cache", "--spec --python --pip-args", versioned=True),
    "hatch run": _wrapper(),
    "rye run": _wrapper(),
    "bundle exec": _wrapper("--keep-file-descriptors"),
    "coverage run": _wrapper(
        "-a --append --branch -p --parallel-mode --timid --debug",
        "--source --include --omit --rcfile --data-file --context --concurrency",
        modules="-m --module",
        runs_operand=False,
    ),
}

_MODULES: Final = word_set(
    "build pytest unittest pip mypy black ruff isort flake8 pylint pyright tox nox coverage pre_commit twine"
)
_LOCAL_BINARIES: Final = word_set(
    "vitest jest mocha ava playwright cypress puppeteer prettier eslint biome dprint pyright tsc webpack vite"
    " next rollup esbuild serverless sls vercel netlify sst"
)
_KNOWN_PROGRAMS: Final = (
    frozenset(SUBCOMMANDS)
    | frozenset(ANY_USE)
    | frozenset(RUNNERS)
    | frozenset(phrase.split()[0] for phrase in (*FLAGGED, *WRAPPERS))
)


def base_name(word: str) -> str:
    return word.rpartition("/")[2]


def without_assignments(argv: list[str]) -> list[str]:
    start = next((place for place, word in enumerate(argv) if not _ASSIGNMENT.match(word)), len(argv))
    return argv[start:] if start else argv


def unwrap(argv: list[str]) -> list[str] | str | None:
    """The wrapped command's words, or the text of a script; None if the program is not a wrapper."""
    program = canonical(base_name(argv[0]))
    if program == "eval":
        return " ".join(argv[1:]) or None
    wrapper = _find(program, argv)
    if wrapper:
        return _inner(*wrapper, argv) or None
    if program not in SCRIPT_RUNNERS or program == "npm":
        return None
    # `pnpm vitest` and `yarn run eslint` run a package's program; npm runs scripts only
    words = ((place, word) for place, word in positionals(program, argv[1:]) if word != "run")
    place, word = next(words, (0, ""))
    return argv[place + 1 :] if word in _LOCAL_BINARIES else None


def runs_elsewhere(argv: Sequence[str]) -> bool:
    wrapper = _find(canonical(base_name(argv[0])), argv)
    return wrapper is not None and wrapper[0].is_remote


def _find(program: str, argv: Sequence[str]) -> tuple[Wrapper, int] | None:
    """The wrapper at the beginning, and the position of its options."""
    if program in WRAPPERS:
        return WRAPPERS[program], 1
    phrase = program
    for place, word in islice(positionals(program, argv[1:]), 2):
        phrase = f"{phrase} {word}"
        if phrase in WRAPPERS:
            return WRAPPERS[phrase], place + 2
    return None


def _inner(wrapper: Wrapper, start: int, argv: list[str]) -> list[str] | str | None:
    place = start
    while place < len(argv):
        word = argv[place]
        if wrapper.assigns and _ASSIGNMENT.match(word):
            place += 1
            continue
        if word == "--" or not word.startswith("-"):
            rest = argv[place + (word == "--") + wrapper.operands :]
            if wrapper.is_remote and rest and rest[0].startswith("-") and "--" in rest:
                rest = rest[rest.index("--") + 1 :]  # `kubectl exec pod -c app -- pytest`
            return " ".join(rest) if wrapper.joins else _operand(wrapper, rest)
        act = "pass" if _LEVEL.fullmatch(word) else wrapper.act(word)
        if act == "script":
            return "".join(argv[place + 1 : place + 2])
        if act == "module":
            module = argv[place + 1 :]
            return module if module and module[0] in _MODULES else None
        if act == "nothing":
            return None
        if act == "unknown":
            # The next word may be the option's value, even a secret, unless it is a known program.
            rest = argv[place + 1 :]
            is_program = bool(rest) and canonical(base_name(rest[0])) in _KNOWN_PROGRAMS
            return _operand(wrapper, rest) if is_program and not wrapper.operands else None
        place += 2 if act == "pass value" else 1
    return None


def _operand(wrapper: Wrapper, rest: list[str]) -> list[str] | None:
    if not rest or not wrapper.runs_operand:
        return None
    # `npx jest@29` runs jest; the `@` of `@biomejs/biome` is no version
    program = _VERSION.sub("", rest[0]) if wrapper.versioned else rest[0]
    return [program, *rest[1:]]
