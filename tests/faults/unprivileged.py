"""A daemon to which modes of files apply, also where tests run as root."""

from __future__ import annotations

import ctypes
import os
import sys

_PR_CAPBSET_DROP = 24
_OVERRIDES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

if __name__ == "__main__":
    for right in _OVERRIDES:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, right, 0, 0, 0)  # refused to who has none to give up
    os.execv(sys.executable, [sys.executable, "-m", "burnd", *sys.argv[1:]])
