"""Following log files that grow: watching, scanning, tailing, reading, committing."""
