"""Has `std::random_device` of this process draw from its kernel.

libstdc++ asks the processor (RDRAND), whose numbers repeat in no run: torch's clients of a store
wait by them before they try again. Where the kernel's own random numbers repeat, so does then all
that a rank draws. `observer.py` beside this file loads it.
"""

from __future__ import annotations

import ctypes
import mmap

_DRAWS = "_ZNSt13random_device9_M_getvalEv"
"""std::random_device::_M_getval(), which every draw calls (bits/random.h of libstdc++)."""
_PAGE = mmap.PAGESIZE
_READ, _WRITE, _EXECUTE = 1, 2, 4
# sub rsp,8; mov rdi,rsp; mov esi,4; xor edx,edx; mov eax,318 (getrandom); syscall;
# mov eax,[rsp]; add rsp,8; ret
_CODE = bytes.fromhex("4883ec084889e7be0400000031d2b83e0100000f058b04244883c408c3")


def draw_from_the_kernel() -> None:
    """From now on, where the C++ library has it. Raises OSError."""
    try:
        function = getattr(ctypes.CDLL("libstdc++.so.6"), _DRAWS)
    except (OSError, AttributeError):
        return
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    first = address // _PAGE * _PAGE
    length = address + len(_CODE) - first
    libc = ctypes.CDLL(None, use_errno=True)
    pages = ctypes.c_void_p(first), ctypes.c_size_t(length)
    if libc.mprotect(*pages, _READ | _WRITE | _EXECUTE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memmove(address, _CODE, len(_CODE))
    libc.mprotect(*pages, _READ | _EXECUTE)
