"""Families and verbs of commands: alone, and in common forms."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from burnd.classify.shell import UNREADABLE, family, verb
from tests.classify.families import COMMANDS, EACH, FAMILIES

FORMS = [
    "{}",
    "{} some/file --flag=x",
    "FOO=1 BAR='a b' {}",
    "cd /some/where && {}",
    "sudo -u somebody {}",
    "env -i A=b {}",
    "time {}",
    "timeout 5m {}",
    "bash -lc '{}'",
    'sh -c "cd x; {} arg"',
    "ls -la; {} 2>&1 | tail -20",
    "( {} )",
    "if {}; then echo good; fi",
]


def test_every_family_is_covered() -> None:
    assert tuple(COMMANDS) == FAMILIES


def read_as(commands: Iterable[str]) -> dict[str, str | None]:
    return {command: family(command) for command in commands}


@pytest.mark.parametrize("name", FAMILIES)
def test_each_listed_command_belongs_to_its_family(name: str) -> None:
    """Whole, or as the verb that the ledger keeps of it."""
    listed = COMMANDS[name]
    assert read_as(listed) == dict.fromkeys(listed, name)
    verbs = [verb(command) for command in listed]
    assert read_as(verbs) == dict.fromkeys(verbs, name)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("docker exec -it app bash -c 'cd /app && pytest'", "testing"),
        ("ssh host 'pytest'", "testing"),
        ("ssh -i key me@host 'cd app && npm run build'", "build-deploy"),
        ("yarn", "deps"),
        ("yarn --frozen-lockfile", "deps"),
    ],
)
def test_commands_that_take_no_further_argument(command: str, name: str) -> None:
    assert family(command) == name
    assert family(verb(command)) == name


@pytest.mark.parametrize("form", FORMS)
def test_a_wrapped_command_keeps_its_family(form: str) -> None:
    # `make file` asks for another goal than `make` does.
    bare = form.replace(" some/file --flag=x", " -j8").replace("{} arg", "{}")
    wrapped = {(bare if command == "make" else form).format(command): name for name, command in EACH}
    assert read_as(wrapped) == wrapped


@pytest.mark.parametrize("form", ["echo {}", 'echo "{}"', "grep '{}' x", "rg {} src", "cat {}", "# {}"])
def test_the_same_words_as_arguments_belong_to_no_family(form: str) -> None:
    said = [form.format(command) for _, command in EACH]
    assert read_as(said) == dict.fromkeys(said)


@pytest.mark.parametrize(
    "command",
    [
        *("git", "git branch", "git rev-parse HEAD", "git stage", "gh", "gh pr", "gh pr comment", "gh issue list"),
        *("gh run list", "gh repo view", "npm", "npm run", "npm run build:prod"),
        *(
            "npm run install",
            "npm start",
            "yarn --version",
            "yarn own-script",
            "bun index.ts",
            "bun test.ts",
            "bun run test.js",
        ),
        *("pip list", "python -m http.server", "python test.py", "uv", "uv pip list", "uv run main.py"),
        *("poetry lock", "pdm run", "cargo", "cargo run", "cargo doc", "go run .", "go mod init"),
        *("bundle", "gem list", "brew list", "apt update", "apt-get update", "dnf search"),
        *("prettier", "prettier src", "biome", "biome format", "ruff", "ruff rule", "gofmt -l .", "goimports ."),
        *(
            "dprint check",
            "clang-format x.c",
            "shfmt -d .",
            "terraform",
            "terraform init",
            "git branch -a",
            "cmake -B build",
        ),
        *("make clean", "make all", "make testing", "make docs", "docker", "docker run x", "docker compose down"),
        *("docker compose logs", "vite", "vite dev", "next dev", "gradle", "gradle tasks", "mvn clean", "mvn verify"),
        *("kubectl get pods", "kubectl logs x", "helm list", "serverless logs", "netlify dev", "fly logs"),
        *("railway logs", "sst dev", "playwright install", "node", "node app.js", "node app.js --test"),
        *(
            "deno run x.ts",
            "dotnet run",
            "swift run",
            "mix compile",
            "ssh host",
            "docker exec app ls",
            "pytest-watch",
            "jester",
            "makefile",
        ),
    ],
)
def test_neighbours_of_listed_commands_belong_to_none(command: str) -> None:
    assert family(command) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("prettier --check src", "verification"),
        ("prettier --write --check src", "format"),
        ("eslint . --ext .ts --fix", "format"),
        ("eslint --fix-dry-run .", "verification"),
        ("biome check --write src", "format"),
        ("biome check src", "verification"),
        ("biome format src --write", "format"),
        ("black --check --diff .", "verification"),
        ("black -q src", "format"),
        ("ruff check . --fix", "format"),
        ("ruff check . --unsafe-fixes", "verification"),
        ("ruff format . --check", "verification"),
        ("cargo fmt --all -- --check", "verification"),
        ("cargo fmt --all", "format"),
        ("gofmt -s -w .", "format"),
        ("shfmt -i 2 -w x.sh", "format"),
        ("clang-format -style=file -i x.c", "format"),
        ("tsc --noEmit -p tsconfig.json", "verification"),
        ("tsc -b packages/a", "build-deploy"),
        ("node --import tsx --test", "testing"),
        ("node --test-reporter spec --test", "testing"),
    ],
)
def test_a_deciding_flag_counts_in_any_place_and_stays_in_the_verb(command: str, expected: str) -> None:
    assert family(command) == expected
    assert family(verb(command)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("make lint test", "testing"),
        ("make build lint", "verification"),
        ("make clean build", "build-deploy"),
        ("make clean docs", None),
        ("make -j4", "build-deploy"),
        ("make -j 4 CC=clang", "build-deploy"),
        ("gradle build test", "testing"),
        ("./gradlew :app:test", "testing"),
        ("./gradlew build -x test", "build-deploy"),
        ("mvn clean package -DskipTests", "build-deploy"),
        ("./mvnw -q -pl core test", "testing"),
    ],
)
def test_of_many_goals_the_family_listed_first_decides(command: str, expected: str | None) -> None:
    assert family(command) == expected
    assert family(verb(command)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status && npm test", "review"),
        ("npm test && git status", "testing"),
        ("pip install pytest && pytest", "deps"),
        ("ls; pwd; npm run lint; npm test", "verification"),
        ("git add -A && git commit -m x && git push", "git"),
        ("npm run build | tee log && npm test", "build-deploy"),
        ("bash -c 'ls && npm ci'; npm test", "deps"),
    ],
)
def test_the_first_command_with_a_family_decides(command: str, expected: str) -> None:
    assert family(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npm run build", "npm build"),
        ("npm run test:unit -- --watch", "npm test"),
        ("npm run-script lint", "npm lint"),
        ("npm i lodash", "npm install"),
        ("npm t", "npm test"),
        ("npm run my-own-script", "npm run"),
        ("npm run dev", "npm dev"),
        ("npm publish --otp 123456", "npm publish"),
        ("pnpm -r build", "pnpm build"),
        ("yarn my-own-script", "yarn other"),
        ("yarn --immutable", "yarn install"),
        ("docker compose exec app ls", "docker compose exec"),
        ("docker compose exec app pytest -q", "pytest"),
        ("gh pr view 123", "gh pr view"),
        ("gh pr view", "gh pr view"),
        ("gh api repos/o/r", "gh api"),
        ("cd x && FOO=1 pytest -q", "pytest"),
        ("python -m pytest -q", "pytest"),
        ("python -m unittest discover", "unittest"),
        ("python -m pip install x", "pip install"),
        ("pip3 install x", "pip3 install"),
        ("python3 script.py --token abc", "python3"),
        ("python -m my_module", "python"),
        ("uv pip install x", "uv pip install"),
        ("uv run", "uv run"),
        ("git", "git"),
        ("git push --force origin main", "git push"),
        ("git my-alias", "git"),
        ("docker compose up -d", "docker compose up"),
        ("docker run --rm -e KEY=x image", "docker run"),
        ("make", "make"),
        ("make -j8", "make"),
        ("make test", "make test"),
        ("make customer-acme-report", "make other"),
        ("gradle customerReport", "gradle"),
        ("ruff format .", "ruff format"),
        ("ruff format --check .", "ruff format --check"),
        ("prettier -w src", "prettier --write"),
        ("tsc --noEmit", "tsc"),
        ("tsc -b", "tsc --build"),
        ("node --test", "node --test"),
        ("node server.js", "node"),
        ("cargo t", "cargo test"),
        ("kubectl rollout status deploy/x", "kubectl rollout"),
        ("curl -H 'Authorization: Bearer abc' https://x", "curl"),
        ("./scripts/deploy.sh prod", "deploy.sh"),
        ("ls -la | grep x", "ls"),
        ("cd somewhere", "cd"),
        ("cd somewhere && ls", "ls"),
        ("export A=1; set -e; node x", "node"),
        ("true; cd x", "true"),
        ("", UNREADABLE),
        ("   \n ", UNREADABLE),
        ("FOO=bar", UNREADABLE),
        ("# only a comment", UNREADABLE),
        ("$CMD arg", UNREADABLE),
        ("$(cmd) arg", UNREADABLE),
        ("'a b' c", UNREADABLE),
        ("-x", UNREADABLE),
        ("&& ||", UNREADABLE),
        ("./" + "x" * 41, UNREADABLE),
        ("./\u00fcbung", UNREADABLE),
        (UNREADABLE, UNREADABLE),
    ],
)
def test_verbs(command: str, expected: str) -> None:
    assert verb(command) == expected
    assert verb(expected) == expected


SECRET = "hunter2"

LEAKY = [
    "npm run {}",
    "npm --registry {} install",
    "yarn {}",
    "make {}",
    "make test {}",
    "make -f {} -C {}",
    "gradle {}",
    "mvn {} test",
    "git {}",
    "git -c http.extraHeader={} push {}",
    "git commit -m {}",
    "gh {}",
    "gh pr {}",
    "gh pr view {}",
    "docker login -u x -p {}",
    "docker compose {}",
    "pip install --index-url https://user:{}@host/simple x",
    "pytest {}",
    "vercel --token {} deploy",
    "vercel {}",
    "curl -u user:{} https://x/{}",
    "echo {} | sudo -S ls",
    "sudo -p {} ls",
    "sudo --unheard-of {} ls",
    "npx --token {} foo",
    "uv run --unheard-of {} foo",
    "timeout --unheard-of {} 5 ls",
    "xargs --unheard-of {} foo",
    "env TOKEN={} ls",
    "TOKEN={} ls",
    "TOKEN={}",
    "export TOKEN={}",
    "bash -c 'curl {}'",
    "bash -c 'TOKEN={} x' {}",
    "python -m {}",
    "python -c {}",
    "node -e {}",
    "cat <<EOF\n{}\nEOF",
    "cat <<< {}",
    "ls > {} 2> {}",
    "ls # {}",
    "echo $({}) `{}` ${{x:-{}}}",
    "ssh {}@host {}",
    "kubectl --token {} get pods",
    "eslint --fix {}",
    "prettier --write {}",
    "for x in {}; do ls; done",
    "case {} in {}) ls;; esac",
    "{}() {{ ls; }}",
    "[[ {} == {} ]] && ls",
    "mysql -p{} db",
    "/home/{}/bin/tool",
]


@pytest.mark.parametrize("form", LEAKY)
def test_an_argument_never_gets_into_a_verb(form: str) -> None:
    assert SECRET not in verb(form.replace("{}", SECRET).replace("{{", "{").replace("}}", "}"))
