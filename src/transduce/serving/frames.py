"""Messages between a server and the processes of its models: JSON, with its length in four bytes before it."""

import asyncio
import json
import struct
from typing import Any, BinaryIO, Final

_LENGTH: Final = struct.Struct("<I")
Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """A message as it goes through a pipe."""
    # A lone surrogate stays an escape, so that any text gets through.
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def read(stream: BinaryIO) -> Message | None:
    """The next message, or None at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    body = stream.read(size)
    return None if len(body) < size else json.loads(body)


async def receive(stream: asyncio.StreamReader) -> Message | None:
    """The next message, or None at the end."""
    try:
        (size,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        message: Message = json.loads(await stream.readexactly(size))
    except asyncio.IncompleteReadError:
        return None
    return message
