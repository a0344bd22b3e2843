"""The metadata service of a machine on EC2, as far as scripts on the machine ask it: over HTTP, on loopback."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"


@dataclass
class Imds:
    """What it says, by path below meta-data/. Like EC2 with HttpTokens=required, it says nothing without a token."""

    says: dict[str, str]
    late: dict[str, int] = field(default_factory=dict)
    """How often it still says that it has no such thing."""
    tokens: set[str] = field(default_factory=set)
    refused: int = 0
    """How often it was asked without one of its tokens."""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def new_token(self, ttl: str | None) -> tuple[int, str]:
        if not ttl or not 1 <= int(ttl) <= 21600:
            return 400, ""
        token = secrets.token_urlsafe()
        self.tokens.add(token)
        return 200, token

    def answer(self, path: str, token: str | None) -> tuple[int, str]:
        if token not in self.tokens:
            self.refused += 1
            return 401, ""
        self.asked.append(path)
        if self.late.get(path, 0) > 0:
            self.late[path] -= 1
            return 404, ""
        if path == "tags/instance":
            return 200, "\n".join(key.rpartition("/")[2] for key in self.says if key.startswith("tags/instance/"))
        return (200, self.says[path]) if path in self.says else (404, "")


@contextmanager
def imds(says: Mapping[str, str]) -> Iterator[Imds]:
    """A metadata service that says this, until the block ends."""
    double = Imds(dict(says))

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            known = self.path == "/latest/api/token"
            self._answer(*(double.new_token(self.headers.get(TOKEN_TTL)) if known else (404, "")))

        def do_GET(self) -> None:
            path = self.path.removeprefix("/latest/meta-data/").rstrip("/")
            self._answer(*double.answer(path, self.headers.get(TOKEN)))

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        double.url = f"http://127.0.0.1:{server.server_port}/latest"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()
