"""In a container: what kube-proxy does for a Service with an address of its own.

usage: service_proxy.py PORT FILE    passes connections on to the host:port that FILE has; while it
                                     has none they are refused
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

_LOOK_SECONDS = 0.1


async def main(port: int, file: Path) -> None:
    while True:
        if target := file.read_text():
            async with await asyncio.start_server(_to(target), "0.0.0.0", port):  # noqa: S104
                while file.read_text() == target:
                    await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.sleep(_LOOK_SECONDS)


def _to(target: str):
    host, port = target.split(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    return serve


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while some := await reader.read(1 << 16):
            writer.write(some)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
