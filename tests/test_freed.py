import subprocess
import sys

import pytest

FREES = """
import ctypes, re
from pathlib import Path
from proxy.freed import release

def resident_kib():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
blocks = [library.malloc(1000) for _ in range(20_000)]
for block in blocks:
    ctypes.memset(block, 1, 1000)
for block in blocks[:-1]:  # the last one, on top of all others, stays
    library.free(block)
before = resident_kib()
release()
print(before - resident_kib())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="glibc keeps what is freed")
def test_what_is_free_below_what_is_in_use_goes_back_to_the_system() -> None:
    ran = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, check=True)

    assert int(ran.stdout) > 15_000  # KiB
