"""burnd on a platform that has no tantivy."""

from __future__ import annotations

import sys
from typing import Any

modules: dict[str, Any] = sys.modules
modules["tantivy"] = None  # importing it fails from now on

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
