"""Checks of every request before anything is read: host, token, a body only where one is expected, rate and length."""

from __future__ import annotations

import hmac
import ipaddress
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

LONGEST_ADDRESS = 8000  # bytes of path and query
LONGEST_HEADERS = 32_000  # bytes
RATE = 200.0  # requests a second, in the long run, of everyone together
BURST = 1000.0  # requests at once
MOST_AT_ONCE = 64
LARGEST_BODY = 16 * 2**20  # bytes of an upload
LARGEST_BODIES = 4 * LARGEST_BODY  # of all that are on their way
POST_RATE, POST_BURST = 10.0, 60.0  # of requests with a body, as above
HEADER = "x-ig2-session"  # which no page of another origin can send without asking first, and that is refused
COOKIE = "ig2-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# a report brings a stricter policy of its own, with the digest of its script
REPORT, REPORT_POLICY = "/whatif/kept", "frame-ancestors 'none'"

Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Guard:
    """Middleware that rejects requests not meant for this server, and adds the headers of every response.

    Args:
        app: the application behind the guard.
        hosts: the accepted host names of this server, without the port.
        token: the token required in the address or the cookie; None on a loopback address.
        any_address: whether to accept an IP address as a host name, if the server listens on all addresses.
        clock: a function that returns the time in seconds.
        posts: the paths that accept POST with a body; all others accept none.
    """

    app: Any
    hosts: frozenset[str]
    token: str | None = None
    any_address: bool = False
    clock: Callable[[], float] = time.monotonic
    posts: frozenset[str] = frozenset()
    allowance: float = field(default=BURST, init=False)
    last: float = field(default=0.0, init=False)
    busy: int = field(default=0, init=False)
    post_allowance: float = field(default=POST_BURST, init=False)
    body_bytes: int = field(default=0, init=False)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a web socket is closed
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refuse(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if self.token is not None and "token" in query:  # kept in a cookie, and not in the address
            cookie = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(send, 303, "", {"location": "/", "set-cookie": cookie})
            return

        async def send_guarded(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = REPORT_POLICY if scope["path"] == REPORT else POLICY
                message["headers"] = [*message.get("headers", []), *_encode(_harden(policy))]
            await send(message)

        size = int(headers.get("content-length", "0"))
        rest = size

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

    def _refuse(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]] | None:
        """Return the status, the reason and the headers of a rejection; None for an accepted request."""
        now = self.clock()
        self.allowance = min(BURST, self.allowance + (now - self.last) * RATE)
        self.post_allowance = min(POST_BURST, self.post_allowance + (now - self.last) * POST_RATE)
        self.last = now
        if not self._knows(headers.get("host", "")):
            return 421, "this server has another name: use the address that ig2 serve printed", {}
        if self.allowance < 1:
            return 429, "too many requests: wait a second", {"retry-after": "1"}
        self.allowance -= 1
        if self.busy >= MOST_AT_ONCE:
            return 503, "too many requests at once: wait a second", {"retry-after": "1"}
        is_post = scope["method"] == "POST" and scope["path"] in self.posts
        if scope["method"] not in ("GET", "HEAD") and not is_post:
            # closed, or a body would be read to its end
            return 405, "this server answers GET alone", {"allow": "GET, HEAD", "connection": "close"}
        if not is_post and (headers.get("content-length", "0") != "0" or "transfer-encoding" in headers):
            return 413, "requests have no body here", {"connection": "close"}
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string", b"")) > LONGEST_ADDRESS:
            return 414, f"the address is longer than {LONGEST_ADDRESS:,} bytes: filter by fewer things", {}
        if sum(len(name) + len(value) for name, value in headers.items()) > LONGEST_HEADERS:
            return 431, f"the headers are longer than {LONGEST_HEADERS:,} bytes", {"connection": "close"}
        # a link on another page may lead to the first page; scripts and pictures of another page get nothing
        came_by_link = scope["path"] == "/" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not came_by_link:
            return 403, "another page asked for this", {}
        if self.token is not None and not self._is_known(scope, headers):
            return 403, "the token is missing or wrong: open the address that ig2 serve printed", {}
        return self._refuse_post(headers) if is_post else None

    def _refuse_post(self, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]] | None:
        """Check a request with a body, as `_refuse` does: sent by this page, of known length, not too large or too many."""
        origin = headers.get("origin")
        if HEADER not in headers or (origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()):
            return 403, "another page asked for this", {"connection": "close"}
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not length.isdecimal():
            return 411, "the length of the body is missing", {"connection": "close"}
        if len(length) > 12 or int(length) > LARGEST_BODY:
            return 413, f"the body is larger than {LARGEST_BODY // 2**20} MiB: make it smaller", {"connection": "close"}
        if self.post_allowance < 1:
            return 429, "too many questions: wait a second", {"retry-after": "1", "connection": "close"}
        if self.body_bytes + int(length) > LARGEST_BODIES:
            return 503, "too many uploads at once: wait a second", {"retry-after": "1", "connection": "close"}
        self.post_allowance -= 1
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

    def _is_known(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> bool:
        brought = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        brought = brought or ([cookie.value] if cookie is not None else [])
        wanted = (self.token or "").encode()
        return bool(brought) and hmac.compare_digest(brought[0].encode("utf-8", "replace"), wanted)


def _harden(policy: str) -> dict[str, str]:
    return {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
    }


def _encode(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


async def _answer(send: Send, status: int, reason: str, headers: Mapping[str, str]) -> None:
    body = json.dumps({"error": reason}).encode() if reason else b""
    all_headers = {"content-type": "application/json", "content-length": str(len(body)), **_harden(POLICY), **headers}
    await send({"type": "http.response.start", "status": status, "headers": _encode(all_headers)})
    await send({"type": "http.response.body", "body": body})
