"""`burnctl service`: units and agents that hold what a shell knew, and that only their writer takes away."""

from __future__ import annotations

import json
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from burnctl.service import units
from burnctl.service.units import VARIABLES, Settings, command_of, variables_in
from burnd.settings.keys import KEYS
from tests import warm
from tests.burnctl.runner import BURNCTL
from tests.server.wire import until

LABEL, PUSH = "dev.burnd.burnd", "dev.burnd.push"


class Machine:
    """A person's home with stubs of the service managers' programs, which note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.person = folder / "person"
        self.person.mkdir()
        self.programs = folder / "bin"
        self.programs.mkdir()
        self._calls = folder / "calls"
        self.env = {"PATH": f"{self.programs}:/usr/bin:/bin", "HOME": str(self.person), "LANG": "C.UTF-8"}
        self.units = self.person / ".config" / "systemd" / "user"
        self.agent = self.person / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        for name in ("systemctl", "launchctl", "journalctl", "loginctl"):
            self.stub(name)

    def stub(self, name: str, script: str = "exit 0") -> None:
        """`$*` are the words it was called with."""
        path = self.programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {shlex.quote(str(self._calls))}\n{script}\n')
        path.chmod(0o755)

    def inactive(self) -> None:
        """systemd knows no running burnd, launchd has none loaded."""
        self.stub("systemctl", 'case "$*" in *is-active*) exit 3;; esac; exit 0')
        self.stub("launchctl", 'case "$*" in print*) exit 113;; esac; exit 0')

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def service(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return warm.run(
            [*BURNCTL, "service", *words],
            env={**self.env, **env},
            cwd=self.person,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def files(self) -> set[str]:
        found = (path.relative_to(self.person) for path in self.person.rglob("*") if not path.is_dir())
        return {str(path) for path in found}


@pytest.fixture
def machine(folder: Path) -> Machine:
    made = Machine(folder)
    made.inactive()
    return made


def test_install_writes_enables_and_starts(machine: Machine) -> None:
    """The unit is written where systemd looks, and systemd reloads, enables and starts it."""
    done = machine.service("install")
    assert done.returncode == 0, done.stderr
    assert machine.files() == {".config/systemd/user/burnd.service"}
    said = [call for call in machine.calls if "is-active" not in call and "show-environment" not in call]
    assert said == ["systemctl --user daemon-reload", "systemctl --user enable --now burnd.service"]
    assert f"wrote {machine.units / 'burnd.service'}" in done.stdout
    assert "loginctl enable-linger" in done.stdout
    unit = (machine.units / "burnd.service").read_text()
    assert f"ExecStart={sys.executable} -P -m burnd run\n" in unit
    assert (machine.person / ".relayburn").stat().st_mode & 0o777 == 0o700


def test_the_shells_variables_go_into_the_unit(machine: Machine) -> None:
    """Every variable burnd reads and that is set, folders made absolute, nothing else of the environment."""
    machine.service(
        "install",
        RELAYBURN_HOME="burn",
        CLAUDE_CONFIG_DIR="~/other claude",
        XDG_DATA_HOME="/nowhere",
        OPENCODE_DB="/nowhere/x.db",
        RELAYBURN_CONTENT_STORE="hash-only",
        RELAYBURN_CONTENT_TTL_DAYS="30",
        BURND_SOCKET="",
        SECRET_TOKEN="s3cret",
    )
    unit = (machine.units / "burnd.service").read_text()
    assert [line for line in unit.splitlines() if line.startswith("Environment=")] == [
        f"Environment=RELAYBURN_HOME={machine.person}/burn",
        "Environment=RELAYBURN_CONTENT_STORE=hash-only",
        "Environment=RELAYBURN_CONTENT_TTL_DAYS=30",
        f'Environment="CLAUDE_CONFIG_DIR={machine.person}/other claude"',
        "Environment=XDG_DATA_HOME=/nowhere",
        "Environment=OPENCODE_DB=/nowhere/x.db",
    ]
    assert "s3cret" not in unit


def test_every_variable_of_the_settings_is_known() -> None:
    """A variable that burnd learns to read is written into units too."""
    assert {key.env for key in KEYS if key.env} <= set(VARIABLES)


def test_odd_characters_come_through(machine: Machine) -> None:
    """Quotes, backslashes, percent and dollar signs mean themselves to systemd; what it cannot hold is refused."""
    odd = variables_in({"CLAUDE_CONFIG_DIR": '/a "b" \\c %d $e'}, "/")
    unit = units.service(Settings(odd, command_of("/p"), "/h", "/h/s"))
    assert r'Environment="CLAUDE_CONFIG_DIR=/a \"b\" \\c %%d $e"' in unit
    done = machine.service("install", CLAUDE_CONFIG_DIR="/a\nExecStart=/bin/evil")
    assert done.returncode == 1
    assert "CLAUDE_CONFIG_DIR" in done.stderr
    assert machine.files() == set()


def test_print_only_shows(machine: Machine) -> None:
    """--print: every file with its path, and nothing is written or called."""
    done = machine.service("install", "--print", "--socket", "--hardened")
    assert done.returncode == 0, done.stderr
    for name in ("burnd.service", "burnd.socket", "burnd.service.d/hardening.conf", "burnd.service.d/socket.conf"):
        assert f"# {machine.units / name}\n" in done.stdout
    assert (machine.files(), machine.calls) == (set(), [])


def test_hardened_and_socket(machine: Machine) -> None:
    """The optional parts are files of their own, for this home and its socket; a later install without them takes
    them away again."""
    home = machine.person / "my burn"
    assert machine.service("install", "--hardened", "--socket", RELAYBURN_HOME=str(home)).returncode == 0
    drop_ins = machine.units / "burnd.service.d"
    assert f'ReadWritePaths="{home}"\n' in (drop_ins / "hardening.conf").read_text()
    assert f"ListenStream={home}/burnd.sock\n" in (machine.units / "burnd.socket").read_text()
    assert "Requires=burnd.socket" in (drop_ins / "socket.conf").read_text()
    enabled = [call for call in machine.calls if "enable --now" in call]
    assert enabled == ["systemctl --user enable --now burnd.socket", "systemctl --user enable --now burnd.service"]
    assert machine.service("install").returncode == 0
    assert machine.files() == {".config/systemd/user/burnd.service"}
    assert "systemctl --user disable --now burnd.socket" in machine.calls


def test_hardened_leaves_what_it_needs_in_sight() -> None:
    """A private /tmp would hide a home below it, and the socket's folder must be writable, wherever it is."""
    usual = units.hardening(Settings({}, command_of("/p"), "/h/.relayburn", "/run/user/1/burnd.sock"))
    assert "PrivateTmp=yes\n" in usual
    assert "ReadWritePaths=/h/.relayburn /run/user/1\n" in usual
    assert "PrivateTmp" not in units.hardening(Settings({}, command_of("/p"), "/tmp/burn", "/tmp/burn/burnd.sock"))


def test_the_price_updater_is_there_only_when_requested(machine: Machine) -> None:
    """burnd needs no network: only --update-prices installs the weekly timer."""
    assert machine.service("install", "--update-prices").returncode == 0
    unit = (machine.units / "burnd-prices.service").read_text()
    assert f"ExecStart={sys.executable} -P -m burnctl pricing update\n" in unit
    assert (machine.units / "burnd-prices.timer").exists()
    assert machine.calls[-1] == "systemctl --user enable --now burnd-prices.timer"
    assert machine.service("install").returncode == 0
    assert machine.files() == {".config/systemd/user/burnd.service"}
    assert "systemctl --user disable --now burnd-prices.timer" in machine.calls


def test_a_push_is_a_service_of_its_own(machine: Machine) -> None:
    """With its variables, but without secrets; the next install without it takes it away."""
    machine.inactive()
    secret = machine.person / "push"
    secret.write_text("password = hunter2\n")
    secret.chmod(0o600)
    words = ["--push", "s3://bucket/burn", "--credentials", "push", "--without-project", "secret", "--content"]
    words += ["--machine", "box 1", "--user", "ana"]
    env = {"AWS_PROFILE": "team", "AWS_SECRET_ACCESS_KEY": "hunter3"}
    done = machine.service("install", *words, **env)
    assert done.returncode == 0, done.stderr
    text = (machine.units / units.PUSH).read_text()
    assert f"--watch s3://bucket/burn --credentials {secret} --without-project secret" in text
    assert ' --machine "box 1" --user ana --content\n' in text
    assert "Environment=AWS_PROFILE=team\n" in text
    assert "hunter" not in text
    assert "AWS" not in (machine.units / units.SERVICE).read_text()
    assert f"systemctl --user enable --now {units.PUSH}" in machine.calls
    assert machine.service("install").returncode == 0
    assert not (machine.units / units.PUSH).exists()


def test_a_push_with_a_password_in_its_url_is_not_installed(machine: Machine) -> None:
    done = machine.service("install", "--push", "clickhouse://u:hunter2@host/db")
    assert done.returncode == 2
    assert "BURND_PUSH_PASSWORD" in done.stderr
    assert machine.files() == set()


def test_installing_again_takes_up_what_changed(machine: Machine) -> None:
    """A service that runs is stopped before and started after, so that the new settings hold."""
    machine.service("install")
    machine.stub("systemctl")
    assert machine.service("install", RELAYBURN_CONTENT_STORE="off").returncode == 0
    assert machine.calls[-3:] == [
        "systemctl --user stop burnd.service",
        "systemctl --user daemon-reload",
        "systemctl --user enable --now burnd.service",
    ]
    assert "RELAYBURN_CONTENT_STORE=off" in (machine.units / "burnd.service").read_text()


def test_uninstall_removes_what_install_wrote_and_nothing_else(machine: Machine) -> None:
    """A person's own drop-in stays, with its folder; what was recorded stays."""
    machine.service("install", "--hardened", "--socket")
    mine = machine.units / "burnd.service.d" / "override.conf"
    mine.write_text("[Service]\nNice=15\n")
    (machine.person / ".relayburn" / "ledger.jsonl").write_text("{}\n")
    done = machine.service("uninstall")
    assert done.returncode == 0, done.stderr
    assert machine.files() == {".config/systemd/user/burnd.service.d/override.conf", ".relayburn/ledger.jsonl"}
    assert machine.calls[-2:] == [
        "systemctl --user disable --now burnd.socket burnd.service",
        "systemctl --user daemon-reload",
    ]
    mine.unlink()
    again = machine.service("uninstall")
    assert (again.returncode, again.stdout) == (0, "the service is not installed\n")


def test_a_foreign_unit_is_left_alone(machine: Machine) -> None:
    """A burnd.service that a person or a package wrote is neither replaced nor removed."""
    machine.units.mkdir(parents=True)
    unit = machine.units / "burnd.service"
    unit.write_text("[Service]\nExecStart=/opt/burnd\n")
    for action in ("install", "uninstall"):
        done = machine.service(action)
        assert done.returncode == 1
        assert "burnctl did not write it" in done.stderr
    assert unit.read_text() == "[Service]\nExecStart=/opt/burnd\n"


def test_without_systemd_it_names_the_remedy(machine: Machine) -> None:
    """No systemctl, or a user manager that does not answer: exit code 1, nothing written, another way named."""
    (machine.programs / "systemctl").unlink()
    done = machine.service("install", PATH=str(machine.programs))
    assert done.returncode == 1
    assert "systemctl is not here" in done.stderr
    assert "burnctl up" in done.stderr
    machine.stub("systemctl", 'echo "Failed to connect to bus: No medium found" >&2; exit 1')
    done = machine.service("install")
    assert done.returncode == 1
    assert "No medium found" in done.stderr
    assert "burnctl up" in done.stderr
    assert machine.files() == set()


def test_a_failed_start_is_reported(machine: Machine) -> None:
    """systemd's own words, and where to look."""
    machine.stub(
        "systemctl", 'case "$*" in *is-active*) exit 3;; *enable*) echo "Job failed" >&2; exit 1;; esac; exit 0'
    )
    done = machine.service("install")
    assert done.returncode == 1
    assert "Job failed" in done.stderr
    assert "burnctl service logs" in done.stderr


def test_status_and_logs(machine: Machine) -> None:
    """The manager's own words; exit code 3 when it does not run; facts for programs with --json."""
    facts = "ActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=4711\nNRestarts=2\nStatusText=ready"
    machine.stub(
        "systemctl", f'case "$*" in *show\\ burnd*) printf "{facts}\\n";; *status*) echo "active (running)";; esac'
    )
    done = machine.service("status")
    assert (done.returncode, done.stdout) == (0, "active (running)\n")
    assert json.loads(machine.service("status", "--json").stdout) == {
        "version": 1,
        "manager": "systemd",
        "unit": str(machine.units / "burnd.service"),
        "installed": False,
        "enabled": True,
        "running": True,
        "state": "running",
        "pid": 4711,
        "restarts": 2,
        "detail": "ready",
    }
    nothing = 'echo "Unit burnd.service could not be found." >&2; exit 4'
    machine.stub("systemctl", f'case "$*" in *status*) {nothing};; esac')
    done = machine.service("status")
    assert (done.returncode, done.stdout) == (3, "Unit burnd.service could not be found.\n")
    machine.stub("systemctl", 'echo "Failed to connect to bus" >&2; exit 1')
    done = machine.service("status")
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not answer: Failed to connect to bus; start it yourself: `burnctl up`" in done.stderr
    machine.units.mkdir(parents=True, exist_ok=True)
    (machine.units / "burnd.service").touch()
    machine.stub("journalctl", "echo line")
    assert machine.service("logs", "-n", "7").stdout == "line\n"
    assert machine.service("logs", "--follow").stdout == "line\n"
    assert machine.calls[-2:] == [
        "journalctl --user -u burnd.service -n 7 --no-pager",
        "journalctl --user -u burnd.service -n 100 --follow",
    ]


def test_without_a_journal_the_log_file_is_shown(machine: Machine) -> None:
    """The end of the log file in the home, or a message that there is none yet."""
    (machine.programs / "journalctl").unlink()
    for name in ("tail", "sh"):
        found = shutil.which(name)
        assert found is not None
        (machine.programs / name).symlink_to(found)
    done = machine.service("logs", PATH=str(machine.programs))
    assert (done.returncode, "no log yet" in done.stderr) == (1, True)
    (machine.person / ".relayburn").mkdir()
    (machine.person / ".relayburn" / "burnd.log").write_text("one\ntwo\nthree\n")
    assert machine.service("logs", "-n", "2", PATH=str(machine.programs)).stdout == "two\nthree\n"


def test_a_daemon_that_is_no_service_has_its_log_in_a_file(machine: Machine) -> None:
    """`service logs` shows the log of the burnd that `up` started, and of one whose settings name a file."""
    home = machine.person / ".relayburn"
    home.mkdir(mode=0o700)
    (home / "burnd.log").write_text("by hand\n")
    assert machine.service("logs").stdout == "by hand\n"
    machine.units.mkdir(parents=True, exist_ok=True)
    (machine.units / "burnd.service").touch()
    (home / "config.toml").write_text('[log]\nfile = "own.log"\n')
    (home / "own.log").write_text("own\n")
    assert machine.service("logs").stdout == "own\n"


def test_launchd_agent(machine: Machine) -> None:
    """On macOS: a property list that launchd takes, loaded, and unloaded and removed again."""
    done = machine.service("install", "--manager", "launchd", CLAUDE_CONFIG_DIR="/c & d")
    assert done.returncode == 0, done.stderr
    assert machine.files() == {f"Library/LaunchAgents/{LABEL}.plist"}
    domain = f"gui/{os.getuid()}"
    assert machine.calls[-3:] == [
        f"launchctl print {domain}/{LABEL}",
        f"launchctl enable {domain}/{LABEL}",
        f"launchctl bootstrap {domain} {machine.agent}",
    ]
    log = str(machine.person / "Library" / "Logs" / "burnd" / "burnd.log")
    assert plistlib.loads(machine.agent.read_bytes()) == {
        "Label": LABEL,
        "ProgramArguments": [sys.executable, "-P", "-m", "burnd", "run", "--log-file", log],
        "EnvironmentVariables": {"CLAUDE_CONFIG_DIR": "/c & d"},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 15,
        "ProcessType": "Background",
        "LowPriorityIO": True,
        "Nice": 10,
        "Umask": 63,
        "SoftResourceLimits": {"Core": 0},
        "HardResourceLimits": {"Core": 0},
        "StandardErrorPath": f"{log}.stderr",
    }
    done = machine.service("uninstall", "--manager", "launchd")
    assert done.returncode == 0
    assert machine.files() == set()
    assert machine.calls[-1] == f"launchctl bootout {domain}/{LABEL}"
    assert machine.service("uninstall", "--manager", "launchd").stdout == "the service is not installed\n"


def test_launchd_again_status_logs(machine: Machine) -> None:
    """An agent that is loaded is unloaded first; its state and its log can be read."""
    machine.stub("launchctl", 'printf "gui/501/x = {\\n\\tstate = running\\n\\tpid = 99\\n}\\n"')
    assert machine.service("install", "--manager", "launchd").returncode == 0
    assert f"launchctl bootout gui/{os.getuid()}/{LABEL}" in machine.calls
    done = machine.service("status", "--manager", "launchd")
    assert (done.returncode, "is running (pid 99)" in done.stdout) == (0, True)
    assert json.loads(machine.service("status", "--json", "--manager", "launchd").stdout)["pid"] == 99
    (machine.person / "Library" / "Logs" / "burnd" / "burnd.log").write_text("a\nb\n")
    assert machine.service("logs", "-n", "1", "--manager", "launchd").stdout == "b\n"
    machine.inactive()
    assert machine.service("status", "--manager", "launchd").returncode == 3
    done = machine.service("install", "--manager", "launchd", "--hardened")
    assert (done.returncode, "for systemd" in done.stderr) == (2, True)
    machine.agent.write_text("<plist/>")
    assert machine.service("uninstall", "--manager", "launchd").returncode == 1
    assert machine.agent.exists()


def test_a_push_is_an_agent_of_its_own(machine: Machine) -> None:
    """With its variables, but without secrets; the next install without it takes it away, and so does uninstall."""
    machine.inactive()
    domain, agent = f"gui/{os.getuid()}", machine.agent.with_name(f"{PUSH}.plist")
    words = ["install", "--manager", "launchd", "--push", "s3://bucket/burn", "--without-project", "secret"]
    env = {"AWS_PROFILE": "team", "AWS_SECRET_ACCESS_KEY": "hunter3"}
    done = machine.service(*words, **env)
    assert done.returncode == 0, done.stderr
    assert f"wrote {agent}\n" in done.stdout
    assert machine.calls[-2:] == [f"launchctl enable {domain}/{PUSH}", f"launchctl bootstrap {domain} {agent}"]
    facts = plistlib.loads(agent.read_bytes())
    push = ["push", "--no-start", "--watch", "s3://bucket/burn", "--without-project", "secret"]
    assert facts["ProgramArguments"] == [sys.executable, "-P", "-m", "burnctl", *push]
    assert facts["EnvironmentVariables"]["AWS_PROFILE"] == "team"
    assert (facts["Label"], facts["ThrottleInterval"], facts["Umask"]) == (PUSH, 300, 0o077)
    assert facts["StandardErrorPath"] == str(machine.person / "Library" / "Logs" / "burnd" / "push.log")
    assert "hunter" not in agent.read_text()
    assert "AWS" not in machine.agent.read_text()
    assert machine.service("install", "--manager", "launchd").returncode == 0
    assert f"launchctl bootout {domain}/{PUSH}" in machine.calls
    assert machine.files() == {f"Library/LaunchAgents/{LABEL}.plist"}
    assert machine.service(*words).returncode == 0
    done = machine.service("uninstall", "--manager", "launchd")
    assert done.stdout == f"removed {agent}\nremoved {machine.agent}\n"
    assert machine.files() == set()
    assert machine.calls[-2:] == [f"launchctl bootout {domain}/{PUSH}", f"launchctl bootout {domain}/{LABEL}"]


def test_a_push_agent_of_another_writer_stays(machine: Machine) -> None:
    agent = machine.agent.with_name(f"{PUSH}.plist")
    agent.parent.mkdir(parents=True)
    agent.write_text("<plist/>")
    for action in ("install", "uninstall"):
        assert machine.service(action, "--manager", "launchd").returncode == 1
        assert machine.files() == {f"Library/LaunchAgents/{PUSH}.plist"}


def test_print_for_launchd(machine: Machine) -> None:
    """--print shows the agent anywhere, and it can be read back."""
    done = machine.service("install", "--print", "--manager", "launchd")
    path, _, text = done.stdout.partition("\n")
    assert path == f"# {machine.agent}"
    assert plistlib.loads(text.encode())["Label"] == LABEL
    assert machine.files() == set()


def test_a_burnd_started_by_hand_makes_room(machine: Machine) -> None:
    """The service could not start beside it, so the running daemon is stopped first, with a message."""
    home = machine.person / ".relayburn"
    daemon = warm.Popen([sys.executable, "-P", "-m", "burnd", "run"], env=machine.env, stderr=subprocess.DEVNULL)
    try:
        until((home / "burnd.sock").exists)
        done = machine.service("install")
        assert done.returncode == 0, done.stderr
        assert f"stopped the burnd that was started by hand (pid {daemon.pid})" in done.stdout
        assert daemon.wait(timeout=60) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_code_in_the_working_folder_is_not_run(machine: Machine) -> None:
    """F84: the unit's command, started in a folder with a json.py, does not import it."""
    machine.service("install")
    (machine.person / "json.py").write_text("raise SystemExit('planted')")
    unit = (machine.units / "burnd.service").read_text()
    (command,) = [line.removeprefix("ExecStart=") for line in unit.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(command)
    done = subprocess.run([*words[:-1], "check"], env=machine.env, cwd=machine.person, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_interpreter_that_has_no_burnd_is_refused(machine: Machine, tmp_path: Path) -> None:
    """A failure at the next login is reported now, with the reason."""
    bare = tmp_path / "bare"
    bare.mkdir()
    script = "import sys; sys.executable = sys.argv.pop(1); from burnctl.cli import main; sys.exit(main(sys.argv[1:]))"
    fake = bare / "python"
    fake.write_text("#!/bin/sh\necho 'No module named burnd' >&2\nexit 1\n")
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, str(fake), "service", "install"],
        env=machine.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "No module named burnd" in done.stderr
    assert machine.files() == set()
