"""Programs: subcommands, options that take a value, families, and runners of scripts and goals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

TESTING: Final = "testing"
REVIEW: Final = "review"
GIT: Final = "git"
DEPS: Final = "deps"
FORMAT: Final = "format"
VERIFICATION: Final = "verification"
BUILD_DEPLOY: Final = "build-deploy"


def by_word(words_by_family: Mapping[str | None, str]) -> dict[str, str | None]:
    """Turns `{family: "word word"}` into `{word: family}`."""
    return {word: family for family, words in words_by_family.items() for word in words.split()}


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_VERSIONED: Final = re.compile(r"(python|pypy|pip|clang-format)-?[0-9][0-9.]*")

_SAME_PROGRAM: Final = {
    "py": "python",
    "py.test": "pytest",
    "gradlew": "gradle",
    "mvnw": "mvn",
    "flyctl": "fly",
    "sls": "serverless",
    "gtimeout": "timeout",
    "nodejs": "node",
    "gmake": "make",
    "podman": "docker",
    "podman-compose": "docker-compose",
    "mamba": "conda",
    "micromamba": "conda",
    "pre_commit": "pre-commit",
    "tofu": "terraform",
    "yum": "dnf",
}

# Any use of the program belongs to the family.
ANY_USE: Final = by_word(
    {
        TESTING: "pytest unittest vitest jest mocha ava rspec phpunit ctest tox nox cypress puppeteer",
        FORMAT: "isort rustfmt",
        VERIFICATION: "flake8 pylint mypy pyright golangci-lint shellcheck hadolint",
        BUILD_DEPLOY: "build webpack rollup esbuild vercel",
    }
)

_BY_SUBCOMMAND: Final[dict[str, dict[str, str]]] = {
    TESTING: {
        "cargo": "test, nextest",
        "deno": "test",
        "dotnet": "test",
        "go": "test",
        "mix": "test",
        "playwright": "test",
        "swift": "test",
    },
    REVIEW: {
        "gh": "pr view, pr diff, pr checks, pr list, run view, issue view",
        "git": "status, diff, show, log, blame",
    },
    GIT: {
        "gh": "pr create, pr merge",
        "git": "push, pull, fetch, commit, merge, rebase, checkout, switch, cherry-pick, reset, revert,"
        "restore, tag, stash, add, clone, worktree, rm, mv, init, clean, apply, am, submodule",
    },
    DEPS: {
        "apk": "install, remove, upgrade, add, del",
        "apt": "install, remove, upgrade",
        "apt-get": "install, remove, upgrade",
        "brew": "install, remove, upgrade, uninstall",
        "bundle": "install, update, add",
        "cargo": "add, remove, update, install, uninstall",
        "composer": "install, require, update, upgrade, remove",
        "conda": "install, remove, uninstall, update, upgrade",
        "dnf": "install, remove, upgrade",
        "gem": "install",
        "go": "get, mod tidy, mod download",
        "pdm": "add, remove, install, update",
        "pip": "install, uninstall",
        "pipenv": "install, uninstall, update, sync",
        "pipx": "install, uninstall, upgrade, inject",
        "poetry": "add, remove, install, update",
        "uv": "add, remove, sync, lock, pip install, pip uninstall, pip sync, tool install",
    },
    FORMAT: {"dprint": "fmt", "go": "fmt"},
    VERIFICATION: {"cargo": "check, clippy", "go": "vet", "pre-commit": "run", "terraform": "validate"},
    BUILD_DEPLOY: {
        "cargo": "build, publish",
        "docker": "build, push, buildx build, compose build, compose up",
        "docker-compose": "build, up",
        "dotnet": "build, publish",
        "fly": "deploy",
        "go": "build",
        "helm": "install, upgrade",
        "kubectl": "apply, rollout, set",
        "netlify": "deploy",
        "next": "build",
        "poetry": "build, publish",
        "railway": "up",
        "serverless": "deploy",
        "sst": "deploy",
        "swift": "build",
        "terraform": "apply, plan, destroy",
        "twine": "upload",
        "uv": "build, publish",
        "vite": "build",
    },
}

# Without a family, but separate in reports.
_REPORTED: Final[dict[str, str]] = {
    "apt": "update, search, list, show",
    "apt-get": "update, clean",
    "biome": "format, check, lint, ci, init",
    "brew": "list, search, info, update, services",
    "bundle": "exec",
    "cargo": "run, doc, fmt, bench, clean, new, init, tree, metadata, search, fix",
    "composer": "dump-autoload, outdated, run-script, show, validate",
    "conda": "activate, create, env, info, list, run, search",
    "coverage": "run, report, html, xml",
    "deno": "run, task, fmt, lint, check, cache, install",
    "docker": "run, exec, ps, logs, images, pull, stop, start, restart, rm, rmi, inspect, cp, stats, system,"
    "network, volume, image, container, login, tag, compose down, compose logs, compose ps, compose exec,"
    "compose run, compose pull, compose restart, compose stop, compose config",
    "docker-compose": "down, logs, ps, exec, run, pull, restart, stop, config",
    "dotnet": "run, restore, add, format",
    "dprint": "check",
    "fly": "logs, status, secrets, ssh, apps, launch",
    "gh": "api, auth, search, pr checkout, pr comment, pr edit, pr close, pr review, pr ready, pr status,"
    "issue list, issue create, issue comment, issue close, issue edit, run list, run watch, run rerun,"
    "run download, repo view, repo clone, repo create, repo list, release view, release list,"
    "release create, workflow list, workflow run, workflow view",
    "git": "branch, remote, config, rev-parse, rev-list, ls-files, ls-tree, ls-remote, cat-file, grep,"
    "describe, shortlog, reflog, bisect, format-patch, merge-base,"
    "hash-object, check-ignore, for-each-ref, symbolic-ref, update-index, archive, notes, sparse-checkout",
    "go": "run, generate, install, list, env, version, doc, tool, clean, work, mod init, mod graph,"
    "mod vendor, mod why, mod verify, mod edit",
    "helm": "list, template, lint, uninstall, repo, status, rollback, get, dependency",
    "kubectl": "get, describe, logs, delete, exec, port-forward, create, scale, top, config, edit, patch",
    "mix": "deps, compile, format, ecto, phx, run",
    "netlify": "build, dev, env, status",
    "next": "dev, start, lint",
    "nx": "run, test, build, lint, affected, graph",
    "pdm": "run, lock, list, build",
    "pre-commit": "install, autoupdate",
    "pip": "list, show, freeze, download, check, config, index, wheel",
    "pipenv": "run, lock",
    "pipx": "run, list",
    "playwright": "install, codegen, show-report",
    "poetry": "run, lock, show, config, env, init, new, shell",
    "railway": "logs, status, run, variables",
    "ruff": "check, format, rule, config, clean",
    "swift": "run, package",
    "systemctl": "status, start, stop, restart, reload, enable, disable, daemon-reload, list-units",
    "terraform": "init, fmt, output, state, import, show, workspace",
    "turbo": "run, test, build, lint",
    "uv": "run, venv, tree, init, export, python, version, pip list, pip show, pip freeze,"
    "pip compile, tool run, tool list",
    "vercel": "deploy, dev, env, logs, build, pull",
    "vite": "dev, preview, serve",
}

_SAME_SUBCOMMAND: Final[dict[str, dict[str, str]]] = {
    "cargo": {"t": "test", "b": "build", "c": "check", "r": "run", "rm": "remove"},
}

_TAKES_VALUE: Final[dict[str, str]] = {
    "apt": "-o -t -c",
    "apt-get": "-o -t -c",
    "biome": "--config-path --log-level --log-kind",
    "bun": "--cwd --filter -F --config -c -e --eval --env-file -r --preload",
    "cargo": "-C --config --color --manifest-path -Z -p --package --target-dir",
    "dnf": "-c -x --releasever --enablerepo --disablerepo",
    "conda": "-n --name -p --prefix -c --channel --file",
    "docker": "-H --host --context -c --config -l --log-level -f --file -p --project-name --profile"
    " --env-file --project-directory --ansi --progress --parallel",
    "docker-compose": "-f --file -p --project-name --profile --env-file --project-directory -H --host -c"
    " --context --ansi --progress --parallel",
    "dprint": "-c --config -L --log-level",
    "fly": "-a --app -c --config -t --access-token",
    "gh": "-R --repo --hostname",
    "git": "-C -c --git-dir --work-tree --namespace --super-prefix --config-env",
    "go": "-C",
    "gradle": "-p --project-dir -x --exclude-task -b --build-file -c --settings-file -g --gradle-user-home -I"
    " --init-script --tests --console --max-workers -D -P",
    "helm": "-n --namespace --kube-context --kubeconfig",
    "kubectl": "-n --namespace --context --cluster --kubeconfig --user -s --server --as --token -l",
    "make": "-C --directory -f --file --makefile -I --include-dir -o --old-file -W --what-if --new-file",
    "mvn": "-f --file -pl --projects -P --activate-profiles -s --settings -gs -t --toolchains -T --threads -l"
    " --log-file -rf --resume-from -D --define",
    "netlify": "--filter --auth --cwd",
    "node": "-r --require --import --loader --experimental-loader -C --conditions --env-file --test-reporter"
    " --test-reporter-destination --test-name-pattern --test-concurrency",
    "npm": "--prefix -C -w --workspace --registry --userconfig --loglevel --cache",
    "pdm": "-p --project -c --config",
    "pip": "--python --log --proxy --cache-dir --cert --timeout --retries",
    "playwright": "-c --config",
    "pnpm": "--filter -F --filter-prod -C --dir --loglevel --reporter --workspace-concurrency",
    "poetry": "-C --directory -P --project",
    "railway": "-s --service -e --environment",
    "ruff": "--config",
    "serverless": "--stage -s --region -r --config -c",
    "sst": "--stage --config",
    "swift": "--package-path",
    "uv": "--project --directory --config-file --python -p --cache-dir --color",
    "vercel": "--cwd -t --token -S --scope -A --local-config",
    "vite": "-c --config -m --mode",
    # the name in `yarn workspace NAME test` is like the value of an option
    "yarn": "--cwd workspace --include --exclude --from -j --jobs",
}

_FILLERS: Final[dict[str, frozenset[str]]] = {
    "pnpm": word_set("recursive"),
    "yarn": word_set("workspaces foreach global"),
}


class Choice(NamedTuple):
    """`flag` is its spelling in a verb."""

    flag: str
    spellings: frozenset[str]
    family: str


class Flagged(NamedTuple):
    """The family depends on a flag; the first choice that is present wins."""

    choices: tuple[Choice, ...]
    otherwise: str | None = None
    leading_only: bool = False


def _choice(spellings: str, family: str) -> Choice:
    flag, *others = spellings.split()
    return Choice(flag, frozenset({flag, *others}), family)


_WRITES: Final = _choice("--write --fix --apply --apply-unsafe", FORMAT)
_CHECKS: Final = _choice("--check", VERIFICATION)

FLAGGED: Final[dict[str, Flagged]] = {
    "biome check": Flagged((_WRITES,), VERIFICATION),
    "biome format": Flagged((_WRITES,)),
    "biome lint": Flagged((_WRITES,), VERIFICATION),
    "black": Flagged((_CHECKS,), FORMAT),
    "cargo fmt": Flagged((_CHECKS,), FORMAT),
    "clang-format": Flagged((_choice("-i", FORMAT),)),
    "cmake": Flagged((_choice("--build", BUILD_DEPLOY),)),
    "deno fmt": Flagged((_CHECKS,), FORMAT),
    "dotnet format": Flagged((_choice("--verify-no-changes", VERIFICATION),), FORMAT),
    "eslint": Flagged((_choice("--fix", FORMAT),), VERIFICATION),
    "git branch": Flagged((_choice("-d -D --delete", GIT), _choice("-m -M --move", GIT))),
    "gofmt": Flagged((_choice("-w", FORMAT),)),
    "goimports": Flagged((_choice("-w", FORMAT),)),
    "mix format": Flagged((_choice("--check-formatted", VERIFICATION),), FORMAT),
    # arguments after the script belong to it: `node app.js --test` is not a test run
    "node": Flagged((_choice("--test", TESTING),), leading_only=True),
    "prettier": Flagged((_choice("--write -w", FORMAT), _choice("--check -c", VERIFICATION))),
    "ruff check": Flagged((_choice("--fix --fix-only", FORMAT),), VERIFICATION),
    "ruff format": Flagged((_CHECKS,), FORMAT),
    "shfmt": Flagged((_choice("-w --write", FORMAT),)),
    "terraform fmt": Flagged((_choice("-check --check", VERIFICATION),), FORMAT),
    "tsc": Flagged((_choice("--build -b", BUILD_DEPLOY),), VERIFICATION),
}


def _subcommands() -> dict[str, dict[str, str | None]]:
    """By program and phrase of subcommands; also the beginnings of phrases."""
    families: dict[str, dict[str, str | None]] = {}
    for family, programs in ((None, _REPORTED), *_BY_SUBCOMMAND.items()):
        for program, entry in programs.items():
            phrases = families.setdefault(program, {})
            for phrase in entry.split(","):
                words = phrase.split()
                for length in range(1, len(words)):
                    phrases.setdefault(" ".join(words[:length]), None)
                phrases[" ".join(words)] = family
    return families


SUBCOMMANDS: Final = _subcommands()

_VALUED: Final = {program: word_set(options) for program, options in _TAKES_VALUE.items()}
_NONE: Final[frozenset[str]] = frozenset()


def canonical(name: str) -> str:
    """`pip` for `pip3.12`, `gradle` for `gradlew`."""
    versioned = _VERSIONED.fullmatch(name)
    return versioned[1] if versioned else _SAME_PROGRAM.get(name, name)


def positionals(program: str, args: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The words that are neither options nor their values, with their positions."""
    valued, fillers = _VALUED.get(program, _NONE), _FILLERS.get(program, _NONE)
    skips_next = False
    for place, word in enumerate(args):
        if skips_next:
            skips_next = False
        elif word in valued:
            skips_next = True
        elif not word.startswith(("-", "+")) and word not in fillers:
            yield place, word


def subcommand(program: str, args: Sequence[str]) -> str:
    """The longest listed phrase at the beginning of the arguments, or ""."""
    phrases = SUBCOMMANDS.get(program, {})
    same = _SAME_SUBCOMMAND.get(program, {})
    phrase = ""
    for _, word in positionals(program, args):
        longer = f"{phrase} {same.get(word, word)}".lstrip()
        if longer not in phrases:
            break
        phrase = longer
    return phrase


# scripts of npm and the like, goals of make and the like
FamilyAndWords = tuple[str | None, tuple[str, ...]]
"""The words follow the program's name in its verb."""

UNKNOWN_GOAL: Final = "other"
"""Replaces a project-defined name in a verb. `make` alone is a build and `yarn` alone an install."""

SCRIPT_RUNNERS: Final = word_set("npm pnpm yarn bun")
_RUN: Final = word_set("run run-script")
_ASKS_FOR_HELP: Final = word_set("-h --help -v --version")
_TEST_SCRIPT: Final = re.compile(r"test(?!.*\.[cm]?[jt]sx?$)", re.DOTALL)

_SCRIPTS: Final = by_word(
    {
        FORMAT: "format fmt",
        VERIFICATION: "lint typecheck type-check check",
        BUILD_DEPLOY: "build deploy release",
        None: "dev start serve preview watch stop restart fix clean docs e2e"
        " coverage storybook types validate generate codegen migrate seed prepare setup",
    }
)

_PACKAGE_COMMANDS: Final = by_word(
    {
        DEPS: "install add remove uninstall update upgrade ci",
        BUILD_DEPLOY: "publish",
        None: "run exec dlx x audit outdated list ls info view why pack link unlink init create"
        " config cache version login whoami prune dedupe rebuild root bin search pm import patch store",
    }
)

_SAME_COMMAND: Final[dict[str, dict[str, str]]] = {
    "npm": {"i": "install", "rm": "remove", "un": "uninstall", "up": "update", "t": "test", "tst": "test"},
    "pnpm": {"i": "install", "rm": "remove", "un": "uninstall", "up": "update", "t": "test"},
    "yarn": {"i": "install", "up": "upgrade"},
    "bun": {"i": "install", "a": "add", "rm": "remove"},
}

_MAKE_GOALS: Final = by_word(
    {
        TESTING: "test check",
        FORMAT: "fmt format",
        VERIFICATION: "lint typecheck verify",
        BUILD_DEPLOY: "build release dist package deploy install",
        None: "all clean help run dev start stop up down docs",
    }
)

_JVM_GOALS: Final = by_word(
    {
        TESTING: "test",
        BUILD_DEPLOY: "build package",
        None: "clean install verify compile assemble check deploy validate tasks dependencies run",
    }
)


def _read_scripts(program: str, args: Sequence[str]) -> FamilyAndWords:
    words = (word for _, word in positionals(program, args))
    first = next(words, "")
    if first in _RUN:
        return _script(next(words, "")) or (None, ("run",))
    if program == "yarn" and not first:
        return (None, (UNKNOWN_GOAL,)) if _ASKS_FOR_HELP & set(args) else (DEPS, ("install",))
    command = _SAME_COMMAND[program].get(first, first)
    if command in _PACKAGE_COMMANDS:
        return _PACKAGE_COMMANDS[command], (command,)
    return _script(command) or (None, (UNKNOWN_GOAL,) if program == "yarn" else ())


def _script(name: str) -> FamilyAndWords | None:
    """Only names that many projects share: others are private."""
    if _TEST_SCRIPT.match(name):
        return TESTING, ("test",)
    return (_SCRIPTS[name], (name,)) if name in _SCRIPTS else None


def _read_make(program: str, args: Sequence[str]) -> FamilyAndWords:
    words = (word for _, word in positionals(program, args))
    # `-j 4` may have a space, and `CC=clang` sets a variable
    goals = [word for word in words if "=" not in word and not word.replace(".", "").isdigit()]
    if not goals:
        return BUILD_DEPLOY, ()
    return _deciding(goals, _MAKE_GOALS) or (None, (UNKNOWN_GOAL,))


def _read_jvm(program: str, args: Sequence[str]) -> FamilyAndWords:
    goals = [word.rpartition(":")[2] for _, word in positionals(program, args)]
    return _deciding(goals, _JVM_GOALS) or (None, ())


def _deciding(goals: Iterable[str], table: dict[str, str | None]) -> FamilyAndWords | None:
    """The table lists families by precedence."""
    present = set(goals)
    first = next((goal for goal in table if goal in present), None)
    return (table[first], (first,)) if first else None


RUNNERS: Final[dict[str, Callable[[str, Sequence[str]], FamilyAndWords]]] = {
    **dict.fromkeys(SCRIPT_RUNNERS, _read_scripts),
    "make": _read_make,
    "gradle": _read_jvm,
    "mvn": _read_jvm,
}
