"""Clients of a server, in a process of their own: each sends one sentence after the other over its own connection.

    python -m benchmarks.load_generator ADDRESS TEXTS.json --clients N --seconds S [--rate R]

Without a rate every client sends as soon as it has its answer (a closed loop). With one, requests are due at random
times, R a second in all (a Poisson process), whatever the server does (an open loop); a request's time then counts from
when it was due, even where no client was free. TEXTS.json has a list of [text, expected translation]; none is sent
twice before all were sent once. Prints JSON: what was answered and how fast, how many answers were not the expected
ones, and this process's own share of a processor.
"""

import argparse
import asyncio
import itertools
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final
from urllib.parse import urlsplit


@final
class Connection:
    """HTTP/1.1 over one connection that stays open, opened anew where the server has closed it."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self._host, self._port = place.hostname, place.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        for _ in range(2):
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, self._port)
            reader, writer = self._streams
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            writer.write(f"{head}\r\n\r\n".encode() + body)
            try:
                return await self._read(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                self._streams = None
        return 0, b""

    async def _read(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        return int(head.split(" ", 2)[1]), await reader.readexactly(int(fields["content-length"]))


@final
class Load:
    """What the clients send, and what came of it."""

    def __init__(self, address: str, pairs: list[tuple[str, str]]) -> None:
        self._address = address
        self._pairs: Iterator[tuple[str, str]] = itertools.cycle(pairs)
        self.seconds: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.wrong = 0

    async def closed(self, clients: int, seconds: float) -> None:
        """Every client sends as soon as it has its answer."""
        end = time.perf_counter() + seconds

        async def client() -> None:
            connection = Connection(self._address)
            while time.perf_counter() < end:
                await self._send(connection, time.perf_counter())

        await asyncio.gather(*(client() for _ in range(clients)))

    async def open(self, clients: int, seconds: float, rate: float) -> None:
        """Requests are due at random times."""
        due: asyncio.Queue[float | None] = asyncio.Queue()

        async def client() -> None:
            connection = Connection(self._address)
            while (when := await due.get()) is not None:
                await self._send(connection, when)

        working = [asyncio.create_task(client()) for _ in range(clients)]
        chance, when = random.Random(1), time.perf_counter()
        end = when + seconds
        while (when := when + chance.expovariate(rate)) < end:
            await asyncio.sleep(max(0.0, when - time.perf_counter()))
            due.put_nowait(when)
        for _ in working:
            due.put_nowait(None)
        await asyncio.gather(*working)

    async def _send(self, connection: Connection, since: float) -> None:
        text, expected = next(self._pairs)
        body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
        status, answer = await connection.post("/translate", body)
        self.statuses[status] += 1
        if status == 200:
            self.seconds.append(time.perf_counter() - since)
            self.wrong += json.loads(answer)["translatedText"] != expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    load = Load(options.address, json.loads(options.texts.read_text(encoding="utf-8")))
    begin = time.perf_counter()
    if options.rate is None:
        asyncio.run(load.closed(options.clients, options.seconds))
    else:
        asyncio.run(load.open(options.clients, options.seconds, options.rate))
    passed = time.perf_counter() - begin
    print(json.dumps(summarize(load, passed)))


def summarize(load: Load, passed: float) -> dict[str, Any]:
    """The figures of a load that took so many seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    ordered = sorted(load.seconds)
    places = {f"p{share}": min(len(ordered) - 1, len(ordered) * share // 100) for share in (50, 95, 99)}
    return {
        "answers": len(ordered),
        "per_second": len(ordered) / passed,
        "seconds": {name: ordered[place] for name, place in places.items()} if ordered else None,
        "statuses": dict(load.statuses),
        "wrong": load.wrong,
        "own_share": (used.ru_utime + used.ru_stime) / passed,
    }


if __name__ == "__main__":
    main()
