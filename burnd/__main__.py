"""`python -m burnd` is the same as `burnd`."""

from burnd.cli import main

raise SystemExit(main())
