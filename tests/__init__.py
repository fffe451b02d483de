"""The tests.

They start hundreds of processes. Where the environment forbids to write bytecode, as many containers do, each of them
would compile burnd, and every worker all tests. So bytecode is written here.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
