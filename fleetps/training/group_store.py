"""The key-value store through which the workers of a sync group find each other.

Run as ``python -I group_store.py HOST``: it prints its endpoint, answers what Gloo's HTTP store
asks (PUT and GET of /scope/key, DELETE at the end), and ends when its standard input is closed. It
stands alone, so that it starts in a moment.
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class _Handler(BaseHTTPRequestHandler):
    _values: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        self._values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_GET(self) -> None:
        value = self._values.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_DELETE(self) -> None:
        self._answer(200)

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nothing to log per request."""


def main(host: str) -> None:
    server = ThreadingHTTPServer((host, 0), _Handler)
    print(f"{host}:{server.server_address[1]}", flush=True)  # noqa: T201 - read by the parent

    def stop_with_parent() -> None:
        sys.stdin.read()
        server.shutdown()

    threading.Thread(target=stop_with_parent, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
