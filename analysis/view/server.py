"""Serves pages of runs to this machine: read-only, on the loopback device, behind a token."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import urlsplit

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'"
)


class ViewServer(ThreadingHTTPServer):
    """Answers GET of `url` with a page, and of `runs/NUMBER.json` below it with a run's document.

    `documents` make them when they are first asked for; a text is kept, unless they `change`.
    Everything that does not know the token is refused, as is a request by another name than this
    machine's (DNS rebinding).
    """

    daemon_threads = True

    def __init__(
        self,
        page: str,
        documents: Sequence[Callable[[], str]],
        port: int = 0,
        *,
        change: bool = False,
    ) -> None:
        """Raises OSError when the port is taken."""
        super().__init__(("127.0.0.1", port), _Answer)
        self.page = page
        self.token = secrets.token_urlsafe(16)
        self._documents = documents
        self._change = change
        self._made: dict[int, str] = {}
        self._lock = Lock()

    @property
    def url(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def content(self, path: str) -> tuple[str, str] | None:
        """The type and the text at a path below the token; None where there is nothing.

        Raises RunError for a damaged run directory.
        """
        if path == "":
            return "text/html", self.page
        name = path.removeprefix("runs/").removesuffix(".json")
        if path != f"runs/{name}.json" or not name.isdecimal() or int(name) >= len(self._documents):
            return None
        with self._lock:
            if self._change or int(name) not in self._made:
                self._made[int(name)] = self._documents[int(name)]()
            return "application/json", self._made[int(name)]


class _Answer(BaseHTTPRequestHandler):
    server: ViewServer

    def do_GET(self) -> None:
        _, token, path = (*urlsplit(self.path).path.split("/", 2), "", "")[:3]
        own = (f"127.0.0.1:{self.server.server_port}", f"localhost:{self.server.server_port}")
        if self.headers.get("Host") not in own or not secrets.compare_digest(
            token.encode(), self.server.token.encode()
        ):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "The address lacks the token.\n")
            return
        try:
            found = self.server.content(path)
        except (ValueError, OSError) as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n")
            return
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "There is nothing at this address.\n")
            return
        self._send(HTTPStatus.OK, *found)

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the console is the user's."""
