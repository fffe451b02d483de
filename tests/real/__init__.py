"""Tests in a real browser and a real terminal: `make test-real` installs both and runs these."""
