"""`python -m burnctl`."""

from burnctl.cli import main

raise SystemExit(main())
