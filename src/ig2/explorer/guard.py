"""Checks of every request before it is read: host, token, length, number, bodies where expected."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ig2.errors import import_extra

LONGEST_ADDRESS = 8000  # bytes of path and query
LONGEST_HEADERS = 32_000  # bytes
MOST_AT_ONCE = 64
LARGEST_BODY = 16 * 2**20  # bytes of an upload
LARGEST_BODIES = 4 * LARGEST_BODY  # of all that are on their way
HEADER = "x-ig2-session"  # which no page of another origin can send without asking first, and that is rejected
COOKIE = "ig2-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# a report brings a stricter policy of its own, with the digest of its script
REPORT, REPORT_POLICY = "/whatif/kept", "frame-ancestors 'none'"
HARDENING = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Send = Callable[[dict[str, Any]], Awaitable[None]]
Refusal = tuple[int, str, dict[str, str]]  # the status, the reason and further headers


@dataclass
class Guard:
    """Middleware that rejects requests not meant for this server, and adds the headers of every response.

    Args:
        app: the application behind the guard.
        hosts: the accepted host names of this server, without the port.
        token: the token required in the address or the cookie; None on a loopback address.
        any_address: whether to accept an IP address as a host name, if the server listens on all addresses.
        posts: the paths that accept POST with a body; all others accept none.
    """

    app: Any
    hosts: frozenset[str]
    token: str | None = None
    any_address: bool = False
    posts: frozenset[str] = frozenset()
    busy: int = field(default=0, init=False)
    body_bytes: int = field(default=0, init=False)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # a web socket is closed
        request = import_extra("starlette.requests", "serve", "ig2 serve").Request(scope)

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = REPORT_POLICY if scope["path"] == REPORT else POLICY
                added = {**HARDENING, "content-security-policy": policy}.items()
                encoded = [(name.encode(), value.encode()) for name, value in added]
                message["headers"] = [*message.get("headers", []), *encoded]
            await send(message)

        answer = self._answer(request)
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        size = rest = int(request.headers.get("content-length", "0"))

        async def receive_guarded() -> Any:
            nonlocal rest
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                self.body_bytes, rest = self.body_bytes - rest, 0  # it is there, and its reader's from now on
            return message

        self.busy += 1
        self.body_bytes += size
        try:
            await self.app(scope, receive_guarded, send_guarded)
        finally:
            self.busy -= 1
            self.body_bytes -= rest

    def _answer(self, request: Any) -> Any:
        """Return the answer to a request that gets no further; None for an accepted one."""
        responses = import_extra("starlette.responses", "serve", "ig2 serve")
        refusal = self._refuse(request)
        if refusal is not None:
            status, why, headers = refusal
            return responses.JSONResponse({"error": why}, status, headers)
        if self.token is None or "token" not in request.query_params:
            return None
        moved = responses.Response(status_code=303, headers={"location": "/"})
        moved.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict")  # and not in the address
        return moved

    def _refuse(self, request: Any) -> Refusal | None:
        """Return why a request is rejected; None for an accepted one."""
        headers, path, closing = request.headers, request.scope["path"], {"connection": "close"}
        if not self._knows(headers.get("host", "")):
            return 421, "this server has another name: use the address that ig2 serve printed", {}
        if self.busy >= MOST_AT_ONCE:
            return 503, "too many requests at once: wait a second", {"retry-after": "1"}
        is_post = request.method == "POST" and path in self.posts
        if request.method not in ("GET", "HEAD") and not is_post:
            # closed, or a body would be read to its end
            return 405, "this server answers GET alone", {"allow": "GET, HEAD", **closing}
        if not is_post and (headers.get("content-length", "0") != "0" or "transfer-encoding" in headers):
            return 413, "requests have no body here", closing
        if len(request.scope.get("raw_path") or b"") + len(request.scope.get("query_string", b"")) > LONGEST_ADDRESS:
            return 414, f"the address is longer than {LONGEST_ADDRESS:,} bytes: filter by fewer things", {}
        if sum(len(name) + len(value) for name, value in headers.raw) > LONGEST_HEADERS:
            return 431, f"the headers are longer than {LONGEST_HEADERS:,} bytes", closing
        # a link on another page may lead to the first page; scripts and pictures of another page get nothing
        came_by_link = path == "/" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not came_by_link:
            return 403, "another page asked for this", {}
        if self.token is not None:
            brought = request.query_params.get("token", request.cookies.get(COOKIE, ""))
            if not hmac.compare_digest(brought.encode("utf-8", "replace"), self.token.encode()):
                return 403, "the token is missing or wrong: open the address that ig2 serve printed", {}
        return self._refuse_post(headers) if is_post else None

    def _refuse_post(self, headers: Any) -> Refusal | None:
        """Check a request with a body, as `_refuse` does: sent by this page, of known length, not too large or too many."""
        origin, length, closing = headers.get("origin"), headers.get("content-length", ""), {"connection": "close"}
        if HEADER not in headers or (origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()):
            return 403, "another page asked for this", closing
        if "transfer-encoding" in headers or not length.isdecimal():
            return 411, "the length of the body is missing", closing
        if len(length) > 12 or int(length) > LARGEST_BODY:
            return 413, f"the body is larger than {LARGEST_BODY // 2**20} MiB: make it smaller", closing
        if self.body_bytes + int(length) > LARGEST_BODIES:
            return 503, "too many uploads at once: wait a second", {"retry-after": "1", **closing}
        return None

    def _knows(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        name = name.strip("[]").lower()
        if name in self.hosts:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
