"""`python -m burnctl` is the same as `burnctl`."""

from burnctl.cli import main

raise SystemExit(main())
