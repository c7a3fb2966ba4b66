"""Mutations of bytes."""

import random
from collections.abc import Sequence

_NUMBERS = (b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0" * 8, b"\x80\0\0\0")
_TEXTS = (
    *(
        b"[" * 200,
        b"[" * 5000,
        b"{" * 200,
        b"9" * 400,
        b"9" * 5000,
        b"nan",
        b"-1",
        b"1e999",
        b"null",
        b'"',
        b"'",
        b"\n",
    ),
    *(b"\xed\xa0\x80", b"\\ud800", b"=", b",", b"../", b"true", b"{}", b"[]", b"\xef\xbb\xbf"),
)


def mutate(seeds: Sequence[bytes], draw: random.Random) -> bytes:
    """Change one of the seeds in a few places, or join it with another one."""
    content = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        _change(content, seeds, draw)
    return bytes(content)


def _change(content: bytearray, seeds: Sequence[bytes], draw: random.Random) -> None:
    place = draw.randrange(len(content) + 1)
    end = min(len(content), place + int(10 ** draw.uniform(0, 2)))
    match draw.randrange(7):
        case 0 if place < len(content):
            content[place] ^= 1 << draw.randrange(8)
        case 1 if place < len(content):
            content[place] = draw.randrange(256)
        case 2:
            del content[place:end]
        case 3:
            content[place:place] = content[place:end]
        case 4:
            content[place:place] = draw.choice(_TEXTS)
        case 5:
            number = draw.choice(_NUMBERS)
            content[place : place + len(number)] = number
        case _:
            other = draw.choice(seeds)
            content[place:] = other[draw.randrange(len(other) + 1) :]
