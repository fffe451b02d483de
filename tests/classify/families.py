"""Every family of shell commands, and every word that a verb may hold."""

from __future__ import annotations

from itertools import product

from burnd.classify import shell_programs
from burnd.classify.shell_programs import (
    BUILD_DEPLOY,
    DEPS,
    FLAGGED,
    FORMAT,
    GIT,
    REVIEW,
    SUBCOMMANDS,
    TESTING,
    VERIFICATION,
)

FAMILIES = (TESTING, REVIEW, GIT, DEPS, FORMAT, VERIFICATION, BUILD_DEPLOY)
VERB_WORDS = frozenset(
    {
        "test",
        shell_programs.UNKNOWN_GOAL,
        *shell_programs._SCRIPTS,
        *shell_programs._PACKAGE_COMMANDS,
        *shell_programs._MAKE_GOALS,
        *shell_programs._JVM_GOALS,
        *(word for phrases in SUBCOMMANDS.values() for phrase in phrases for word in phrase.split()),
        *(choice.flag for rule in FLAGGED.values() for choice in rule.choices),
    }
)


def _each(programs: str, words: str) -> list[str]:
    return [f"{program} {word}" for program, word in product(programs.split(), words.split())]


NPM_FAMILY = "npm pnpm yarn bun"


COMMANDS: dict[str, list[str]] = {
    "testing": [
        *("pytest", "python -m pytest", "python -m unittest", "vitest", "jest", "mocha", "ava"),
        *("bun test", "deno test", "node --test"),
        *_each(NPM_FAMILY, "test tests test:unit test-e2e"),
        *(f"{program} run {script}" for program in NPM_FAMILY.split() for script in ("test", "test:unit")),
        *("go test", "cargo test", "cargo nextest", "cargo nextest run", "rspec", "phpunit", "ctest"),
        *("make test", "make check", "tox", "nox", "playwright test", "cypress", "cypress run", "puppeteer"),
        *("gradle test", "mvn test", "dotnet test", "swift test", "mix test"),
        *("docker compose run --rm app pytest", "docker compose -f x.yml exec -T app npm test"),
        *("docker-compose run app pytest", "podman exec app pytest"),
        *("docker run --rm -v .:/src image pytest", "kubectl exec -it pod -c app -- pytest"),
        *("ssh host pytest -q", "ssh -p 2222 me@host pytest"),
    ],
    "review": [
        *_each("git", "status diff show log blame"),
        *("gh pr view", "gh pr diff", "gh pr checks", "gh pr list", "gh run view", "gh issue view"),
    ],
    "git": [
        *_each("git", "push pull fetch commit merge rebase checkout switch cherry-pick reset revert restore"),
        *_each("git", "tag stash add clone worktree rm mv init clean apply am submodule"),
        *("git branch -d x", "git branch -D x", "git branch --delete x", "git branch -m x y"),
        *("gh pr create", "gh pr merge"),
    ],
    "deps": [
        *_each(NPM_FAMILY, "install i add remove uninstall update upgrade ci"),
        *_each("pip pip3", "install uninstall"),
        *("python -m pip install", "python -m pip uninstall"),
        *("uv add", "uv remove", "uv sync", "uv lock", "uv pip install"),
        *_each("poetry pdm", "add remove install update"),
        *_each("cargo", "add remove update install"),
        *("pipx install", "composer require", "composer install"),
        *("conda install -y numpy", "conda install -c forge numpy", "mamba install numpy"),
        *("go get", "go mod tidy", "go mod download"),
        *_each("bundle", "install update add"),
        "gem install",
        *_each("brew apt apt-get dnf apk", "install remove upgrade"),
        *("apk add", "apk del", "brew uninstall"),
    ],
    "format": [
        *("prettier --write", "prettier -w", "eslint --fix"),
        *("biome format --write", "biome check --write", "biome check --apply", "biome lint --write"),
        *("black", "black .", "ruff format", "ruff format .", "ruff check --fix"),
        *("isort", "isort .", "rustfmt", "cargo fmt", "gofmt -w", "goimports -w"),
        *("dprint fmt", "clang-format -i", "shfmt -w", "go fmt ./...", "make fmt", "make format", "terraform fmt"),
        *("deno fmt", "mix format", "dotnet format"),
        *(f"{program} run {script}" for program in NPM_FAMILY.split() for script in ("format", "fmt")),
    ],
    "verification": [
        *_each(NPM_FAMILY, "lint typecheck check"),
        *(f"{program} run {each}" for program in NPM_FAMILY.split() for each in ("lint", "typecheck", "check")),
        *("prettier --check", "eslint", "eslint .", "biome check", "biome lint", "black --check"),
        *("ruff check", "ruff format --check", "flake8", "pylint", "mypy", "pyright", "tsc", "tsc --noEmit"),
        *("cargo check", "cargo clippy", "cargo fmt --check", "go vet", "golangci-lint", "golangci-lint run"),
        *("shellcheck", "hadolint", "terraform validate", "make lint", "make typecheck", "make verify"),
        *("pre-commit run", "python -m pre_commit run", "npm run type-check", "terraform fmt -check"),
    ],
    "build-deploy": [
        *("docker build", "docker push", "docker compose build", "docker compose up"),
        *("docker-compose up", "docker buildx build", "cargo build", "go build", "make"),
        *_each("make", "build release dist package deploy install"),
        *_each(NPM_FAMILY, "build"),
        *(f"{program} run build" for program in NPM_FAMILY.split()),
        *("webpack", "vite build", "next build", "rollup", "rollup -c", "esbuild", "tsc --build", "tsc -b"),
        *_each("gradle mvn", "build package"),
        *_each("kubectl", "apply rollout set"),
        *_each("helm", "install upgrade"),
        *_each("terraform", "apply plan destroy"),
        *("serverless deploy", "vercel", "vercel deploy", "netlify deploy", "fly deploy", "railway up"),
        *("sst deploy", "npm publish", "npm run deploy", "dotnet build", "swift build", "podman build"),
        *("cmake --build build", "python -m build", "uv build", "poetry publish", "cargo publish"),
    ],
}


EACH = [(name, command) for name, commands in COMMANDS.items() for command in commands]
