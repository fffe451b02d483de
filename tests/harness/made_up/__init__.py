"""A made-up agent product, which `tests/harness/test_made_up.py` adds to a copy of burnd as `burnd/harness/made_up`."""
