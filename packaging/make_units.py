"""Makes the unit files in systemd/ and the launchd agent in packaging/ from the text that burnctl installs.

    python packaging/make_units.py

They are for those who package burnd; a person runs `burnctl service install`, which knows the interpreter, the home
and the variables that hold on their machine.
"""

from __future__ import annotations

from pathlib import Path

from burnctl.service import launchd, units
from burnctl.service.units import Settings, command_of

ROOT = Path(__file__).parents[1]
NOTE = "Made by packaging/make_units.py from what `burnctl service install` writes."
# Stands for the person's home until the text is made: systemd's own %h would be escaped, since there it is no path.
_HOME = "@HOME@"


def files() -> dict[str, str]:
    """Every file by its path in the repository."""
    home = f"{_HOME}/.relayburn"
    settings = Settings({}, command_of("/usr/bin/python3"), home, f"{home}/burnd.sock")
    note = f"# {NOTE}\n"
    made = {
        f"systemd/{units.SERVICE}": units.service(settings, note),
        f"systemd/{units.SOCKET}": units.socket(settings, note),
        # Beside the units, not in burnd.service.d where they would hold at once: both are for those who want them.
        f"systemd/{units.HARDENING}": units.hardening(settings, note),
        f"systemd/{units.WITH_SOCKET}": units.with_socket(note),
        f"packaging/price-updater/{units.PRICES}": units.prices(settings, note),
        f"packaging/price-updater/{units.PRICES_TIMER}": units.prices_timer(note),
    }
    made = {path: text.replace(_HOME, "%h") for path, text in made.items()}
    log = f"{_HOME}/Library/Logs/burnd/burnd.log"
    advice = f"{NOTE} Put your home folder in the place of {_HOME}."
    made[f"packaging/{launchd.LABEL}.plist"] = launchd.property_list(settings, log, advice)
    return made


def main() -> None:
    for path, text in files().items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
