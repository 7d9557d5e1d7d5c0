"""Runs a filter of system calls by hand, as the kernel does."""

import sys
from collections.abc import Sequence


def answer_of(code: bytes, number: int, architecture: int, arguments: Sequence[int]) -> int:
    """Return what a filter answers to a call."""
    halves = [half for each in arguments for half in (each & 0xFFFFFFFF, each >> 32)]
    words = [number, architecture, 0, 0, *halves, *[0] * (12 - len(halves))]
    place = loaded = 0
    while True:
        kind = int.from_bytes(code[place * 8 : place * 8 + 2], sys.byteorder)
        when, otherwise = code[place * 8 + 2], code[place * 8 + 3]
        value = int.from_bytes(code[place * 8 + 4 : place * 8 + 8], sys.byteorder)
        place += 1
        match kind:
            case 0x06:
                return value
            case 0x20:
                loaded = words[value // 4]
            case _:
                hit = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[kind]
                place += when if hit else otherwise
