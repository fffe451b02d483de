"""Reads a command as a shell would: programs that run count, words passed along do not."""

from __future__ import annotations

import time

import pytest

from burnd.classify.shell import COMMAND_LIMIT, family, read
from burnd.classify.shell_syntax import simple_commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("", []),
        ("ls", [["ls"]]),
        ("a b; c && d || e | f & g |& h\ni", [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g"], ["h"], ["i"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a\\\n  b", [["a", "b"]]),
        ("\"a\"b'c'", [["abc"]]),
        ('a "x \\" y" \'\\\' z', [["a", 'x " y', "\\", "z"]]),
        ("a $'it\\'s' b", [["a", "it\\'s", "b"]]),
        ("a # b; c\nd", [["a"], ["d"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a > out 2>&1 < in b", [["a", "b"]]),
        ("a &> out; b &>> out; c >| out", [["a"], ["b"], ["c"]]),
        (">out a", [["a"]]),
        ("a 2 > x", [["a", "2"]]),
        ("a <<< 'b; c' d", [["a", "d"]]),
        ("cat <<E\nnpm test\nE\nls", [["cat"], ["ls"]]),
        ("cat <<'E' | b\nit's; x\nE\nc", [["cat"], ["b"], ["c"]]),
        ("cat <<-E\n\tx\n\tE\nb", [["cat"], ["b"]]),
        ("cat <<A <<B\n1\nA\n2\nB\nc", [["cat"], ["c"]]),
        ("cat <<E\nnever ends", [["cat"]]),
        ("(a; b) && { c; d; }", [["a"], ["b"], ["c"], ["d"]]),
        ("a $(b; c) `d; e` ${f:-g; h}", [["a", "$()", "$()", "${}"]]),
        ('a "$(b "c)" d)" e', [["a", "$()", "e"]]),
        ("a \"$(cat <<'E'\nit's ) \"\nE\n)\" && b", [["a", "$()"], ["b"]]),
        ("a $(b # it's )\n) c", [["a", "$()", "c"]]),
        ("a <(b; c) >(d)", [["a", "$()", "$()"]]),
        ("a $((1 << 2)); b", [["a", "$()"], ["b"]]),
        ("((i++)); a", [["a"]]),
        ("x=(a b; c); d", [["x=$()"], ["d"]]),
        ("if a; then b; elif c; then d; else e; fi; f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("for x in a b; do c; done; d", [["c"], ["d"]]),
        ("for ((i=0; i<3; i++)); do c; done", [["c"]]),
        ("while a; do b; done < f", [["a"], ["b"]]),
        ("! a", [["a"]]),
        ("case x in a) b;; c|d) e;; (f) g ;; esac; h", [["b"], ["e"], ["g"], ["h"]]),
        ("case x in\n  make)\n    a\n    ;;\nesac\nb", [["a"], ["b"]]),
        ("f() { a; }; b", [["a"], ["b"]]),
        ("function f { a; }; b", [["a"], ["b"]]),
        ("[[ -f a && ( b || c ) ]] && d", [["[[", "-f", "a", "b", "c", "]]"], ["d"]]),
        ("echo if; 'if' a", [["echo", "if"], ["if", "a"]]),
        ("echo }", [["echo", "}"]]),
        ("a\r\nb\r\n", [["a"], ["b"]]),
        ("a 'never ends; b", [["a", "never ends; b"]]),
        ('a "never ends; b', [["a", "never ends; b"]]),
        ("a $(never ends; b", [["a", "$()"]]),
        ("a `never ends; b", [["a", "$()"]]),
        ("a \\", [["a", ""]]),
        (";;&&||;", []),
        (")))", []),
    ],
)
def test_a_line_splits_into_what_a_shell_would_run(text: str, commands: list[list[str]]) -> None:
    assert list(simple_commands(text)) == commands


@pytest.mark.parametrize(
    "command",
    [
        'echo "npm test"',
        "echo npm test",
        "echo 'a && npm test'",
        "printf '%s' 'pytest'",
        "cat x | grep pytest",
        "rg 'npm run build' docs",
        'grep -r "git push" . | wc -l',
        "cat <<'EOF' > ci.sh\nnpm test\ngit push\nEOF",
        "cat > run.sh <<EOF\n#!/bin/sh\npytest\nEOF\nchmod +x run.sh",
        "ls # && npm test",
        "# npm test\nls",
        "which pytest",
        "type -a git",
        "man make",
        "command -v pytest",
        "find . -name '*.py' -exec black {} \\;",
        "export PYTEST=pytest",
        "TEST='npm test'",
        "x=$(npm test)",
        "echo $(npm test) `pytest`",
        "diff <(pytest) expected",
        "tools=(pytest mypy); ls",
        "case $1 in pytest) ls;; make) pwd;; esac",
        "for t in pytest mypy; do echo $t; done",
        "[[ $x == pytest && -f make ]]",
        "if [ -f pytest ]; then ls; fi",
        '"npm test"',
        "'git push'",
        "ssh npm test.example",
        "docker run --name pytest image",
        "python -c 'import pytest; pytest.main()'",
        "alias t='npm test'",
        "trap 'npm test' EXIT",
        "mkdir git; touch make",
        "sed -i 's/npm test/pytest/' x",
        "git",
        "sudo -l pytest",
        "$(which python) -m pytest",
        "pytest() { ls; }",
    ],
)
def test_words_that_are_not_run_belong_to_no_family(command: str) -> None:
    assert family(command) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("FOO=1 pytest", "pytest"),
        ("A=1 B='x y' C=$(z) pytest -q", "pytest"),
        ("cd a/b && pytest", "pytest"),
        ("cd a; cd b; source .venv/bin/activate; pytest", "pytest"),
        ("env pytest", "pytest"),
        ("env -i -u HOME A=1 pytest", "pytest"),
        ("env -S 'pytest -q'", "pytest"),
        ("sudo pytest", "pytest"),
        ("sudo -nE -u root -- pytest", "pytest"),
        ("sudo -uroot FOO=1 pytest", "pytest"),
        ("time -p pytest", "pytest"),
        ("time FOO=1 pytest", "pytest"),
        ("timeout 30 pytest", "pytest"),
        ("timeout -k 5 --signal=KILL 2m pytest", "pytest"),
        ("gtimeout 30 pytest", "pytest"),
        ("nohup pytest &", "pytest"),
        ("nice -n 10 pytest", "pytest"),
        ("nice -10 pytest", "pytest"),
        ("ionice -c2 -n7 pytest", "pytest"),
        ("stdbuf -oL pytest | tee log", "pytest"),
        ("command pytest", "pytest"),
        ("exec pytest", "pytest"),
        ("git ls-files | xargs -0 -n1 -P 4 eslint --fix", "eslint --fix"),
        ("bash -c pytest", "pytest"),
        ("bash -lc 'cd x && pytest'", "pytest"),
        ("bash -euo pipefail -c 'pytest | tee log'", "pytest"),
        ("zsh -ic \"bash -c 'sh -c pytest'\"", "pytest"),
        ("/bin/sh -c \"FOO='a b' pytest\"", "pytest"),
        ("eval 'pytest -q'", "pytest"),
        ("sudo env A=1 timeout 5 bash -c 'nice pytest'", "pytest"),
        ("npx jest", "jest"),
        ("npx --yes -p jest jest@29 --ci", "jest"),
        ("npx @biomejs/biome@1.9.4 check", "biome check"),
        ("npx -c 'jest --ci'", "jest"),
        ("npx --unknown-flag jest", "jest"),
        ("bunx vitest run", "vitest"),
        ("bun x vitest", "vitest"),
        ("npm exec -- tsc --noEmit", "tsc"),
        ("pnpm exec playwright test", "playwright test"),
        ("pnpm dlx prettier --write .", "prettier --write"),
        ("pnpm --filter web exec eslint .", "eslint"),
        ("pnpm vitest run", "vitest"),
        ("yarn jest", "jest"),
        ("yarn run eslint --fix .", "eslint --fix"),
        ("yarn dlx eslint .", "eslint"),
        ("yarn workspace web test", "yarn test"),
        ("yarn workspaces foreach -A run build", "yarn build"),
        ("uv run pytest", "pytest"),
        ("uv run --with x --frozen python -m pytest", "pytest"),
        ("uv run -m pytest", "pytest"),
        ("uvx ruff@latest check --fix", "ruff check --fix"),
        ("poetry run pytest", "pytest"),
        ("poetry -C dir run mypy .", "mypy"),
        ("pipenv run pytest", "pytest"),
        ("pdm run pytest", "pytest"),
        ("bundle exec rspec", "rspec"),
        ("coverage run -m pytest", "pytest"),
        ("python3.12 -W error -m pytest", "pytest"),
        ("python -Im pip install x", "pip install"),
        ("./node_modules/.bin/jest", "jest"),
        ("/usr/bin/git push", "git push"),
        (".venv/bin/pytest", "pytest"),
        (".venv/bin/python -m mypy", "mypy"),
        ('"$VENV/bin/pytest" -q', "pytest"),
        ("$(npm bin)/jest", "jest"),
        ('"/path with space/bin/pytest"', "pytest"),
        ("\\git status", "git status"),
        ("git -C dir -c a=b --no-pager log", "git log"),
        ("npm --prefix x test", "npm test"),
        ("npm -w pkg run lint", "npm lint"),
        ("pnpm -r --filter web run build", "pnpm build"),
        ("docker --context y build .", "docker build"),
        ("docker compose -f a.yml --profile b up -d", "docker compose up"),
        ("make -C dir test", "make test"),
        ("make --directory=dir -f x.mk lint", "make lint"),
        ("cargo +nightly test", "cargo test"),
        ("cargo --manifest-path x/Cargo.toml clippy", "cargo clippy"),
        ("go -C x test ./...", "go test"),
        ("kubectl -n prod --context c apply -f x", "kubectl apply"),
        ("gh -R owner/repo pr view 1", "gh pr view"),
        ("terraform -chdir=infra plan", "terraform plan"),
        ("cat x.yml | kubectl apply -f -", "kubectl apply"),
        ("cat <<'EOF' | kubectl apply -f -\nkind: Pod\nEOF", "kubectl apply"),
        ("git commit -m \"$(cat <<'EOF'\nit's (done\nEOF\n)\" && npm test", "git commit"),
        ("for f in *.py; do black $f; done", "black"),
        ('while read f; do prettier --write "$f"; done < list', "prettier --write"),
        ("if ! npm test; then exit 1; fi", "npm test"),
        ("test -f x || npm ci", "npm ci"),
        ("[[ -f a && -f b ]] && make", "make"),
        ("case $x in a) npm test;; esac", "npm test"),
        ("{ npm test; } 2>&1", "npm test"),
        ("(cd web && npm test)", "npm test"),
        ("f() { npm test; }; f", "npm test"),
        ("echo start; npm test 2>&1 | tail -5", "npm test"),
        ("npm test\\\n  --silent", "npm test"),
        ("npm \\\n  test", "npm test"),
    ],
)
def test_the_command_within_is_found(command: str, expected: str) -> None:
    reading = read(command)
    assert reading.family is not None
    assert reading.verb == expected


def test_nesting_is_followed_only_so_deep() -> None:
    nested = "pytest"
    for _ in range(40):
        nested = f"eval {nested}"
    assert family("eval eval pytest") == "testing"
    assert family(nested) is None


def test_only_the_head_of_a_huge_command_is_looked_at() -> None:
    assert family("npm test # " + "x" * COMMAND_LIMIT) == "testing"
    assert family("echo " + "x" * COMMAND_LIMIT + "; npm test") is None


HOSTILE = [
    *("a;", "'", '"', "$(", '"$(', "${", "> <(", "<<a ", "<<a\n", "a ", "A=1 ", "sudo ", "npx -y ", "(", ")"),
    *("((", "[[ a ; ", "case a in b) ", "\\", "`", "$", "&", "env A=1 ", "1>", "a=(", "bash -c '", "eval "),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_command_takes_no_time(unit: str) -> None:
    for command in (unit * (300_000 // len(unit)), "eval " * 6 + unit * (16_000 // len(unit))):
        start = time.process_time()
        read(command)
        assert time.process_time() - start < 4
