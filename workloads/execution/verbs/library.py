"""`verbs.c` as Python calls it. Calls that sleep let other threads run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

_DEPTH = 16_383
"""Completions that are kept until they are taken. The kernel keeps a slot more, and has powers of
two of them."""

_AT_ONCE = 32


class VerbsError(RuntimeError):
    """A device that does not do what it is asked for, or a peer that does not answer."""


class EventKind(IntEnum):
    """Events, as `verbs.c` numbers them."""

    CREDIT_CAME = 0
    MESSAGE_CAME = 1
    CREDIT_SENT = 2
    MESSAGE_SENT = 3
    FAILED = 4


class Credit(ctypes.Structure):
    """A receiver's invitation to write a message: address, key and length, as it travels."""

    _pack_ = 1
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("rkey", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("qpn", ctypes.c_uint32),
        ("slot", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("status", ctypes.c_int32),
        ("receive", ctypes.c_uint64),
        ("unused", ctypes.c_uint64),
    )


class _Connection(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_char_p),
        ("qpn", ctypes.c_uint32),
        ("psn", ctypes.c_uint32),
        ("own_psn", ctypes.c_uint32),
        ("path_mtu", ctypes.c_int32),
        ("timeout", ctypes.c_int32),
        ("retries", ctypes.c_int32),
    )


@dataclass(frozen=True, slots=True)
class Event:
    """`slot` is the message's; `receive` the request that took what came; `status` says why it
    failed."""

    qpn: int
    slot: int
    kind: EventKind
    status: str
    receive: int


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a device may use."""

    handle: ctypes.c_void_p
    address: int
    length: int


@dataclass(frozen=True, slots=True)
class Peer:
    """The queue pair at the other end: numbers of packets begin at `psn` there, at `own_psn`
    here."""

    address: str
    qpn: int
    psn: int
    own_psn: int


class Device:
    """An RDMA device, opened. All calls raise VerbsError."""

    def __init__(self, library: Path, name: str, address: str) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.gw_status.restype = ctypes.c_char_p
        self._name = name
        self._device = ctypes.c_void_p()
        where = f"no port with address {address}"
        device = ctypes.byref(self._device)
        self._do("gw_open", where, name.encode(), address.encode(), _DEPTH, device)

    def make(self, depth: int) -> tuple[ctypes.c_void_p, int]:
        """A queue pair with room for so many sends and receives, and its number."""
        pair, number = ctypes.c_void_p(), ctypes.c_uint32()
        made = ctypes.byref(pair), ctypes.byref(number)
        self._do("gw_make", "no queue pair", self._device, depth, *made)
        return pair, number.value

    def destroy(self, pair: ctypes.c_void_p) -> None:
        """The opposite of `make`."""
        self._library.gw_destroy(pair)

    def connect(
        self, pair: ctypes.c_void_p, peer: Peer, path_mtu_bytes: int, timeout: int, retries: int
    ) -> None:
        """Connect a queue pair with the one of another rank."""
        to = _Connection(
            peer.address.encode(),
            peer.qpn,
            peer.psn,
            peer.own_psn,
            path_mtu_bytes,
            timeout,
            retries,
        )
        self._do("gw_connect", f"no way to {peer.address}", self._device, pair, ctypes.byref(to))

    def register(self, address: int, length: int) -> Region:
        """Let the device use memory."""
        handle = ctypes.c_void_p()
        self._do(
            "gw_register",
            f"{length} bytes cannot be registered",
            self._device,
            ctypes.c_void_p(address),
            ctypes.c_size_t(length),
            ctypes.byref(handle),
        )
        return Region(handle, address, length)

    def remote_key(self, region: Region) -> int:
        """By which another rank may write there without a credit."""
        self._library.gw_remote_key.restype = ctypes.c_uint32
        return int(self._library.gw_remote_key(region.handle))

    def release(self, region: Region) -> None:
        """The opposite of `register`."""
        self._library.gw_release(region.handle)

    def give(self, pair: ctypes.c_void_p, region: Region, slot: int) -> None:
        """Tell the other end that it may write this message."""
        where = ctypes.c_void_p(region.address)
        self._do("gw_give", "no credit", pair, region.handle, where, region.length, slot)

    def write(self, pair: ctypes.c_void_p, region: Region, slot: int, credit: Credit) -> None:
        """Write a message to where a credit says."""
        where = ctypes.c_void_p(region.address)
        to = ctypes.byref(credit)
        self._do("gw_write", "no WRITE", pair, region.handle, where, region.length, slot, to)

    def take(self, pair: ctypes.c_void_p, receive: int) -> Credit:
        """The bytes that a receive has got; its buffer is there for others again."""
        credit = Credit()
        number = ctypes.c_uint64(receive)
        self._do("gw_take", "no receive", pair, number, ctypes.byref(credit))
        return credit

    def events(self) -> Iterator[Event]:
        """Sleep until something has happened, and say what."""
        found = (_Event * _AT_ONCE)()
        count = self._library.gw_wait(self._device, found, _AT_ONCE)
        if count < 0:
            raise VerbsError(f"{self._name}: no completions any more")
        for each in found[:count]:
            kind = EventKind(each.kind)
            said = self._library.gw_status(each.status).decode() if each.status else ""
            yield Event(each.qpn, each.slot, kind, said, each.receive)

    def _do(self, function: str, otherwise: str, *arguments: Any) -> None:
        error = getattr(self._library, function)(*arguments)
        if error:
            raise VerbsError(f"{self._name}: {otherwise}: {os.strerror(abs(error))}")
