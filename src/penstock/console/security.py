"""Who may ask: the names of the host, the token, and protection from other sites.

The console shows everything that is in a log, and can act on it. It is reached by a browser, which
also runs the scripts of other sites. So each request passes these checks:

1. `Host` is one of the names that the console is served under. Another site could give its own name
   the address 127.0.0.1, and would then be the same origin (DNS rebinding).
2. With a token, the request has a cookie that was derived from it, or `Authorization: Bearer`. The
   token itself is in a URL once: the answer to it sets the cookie and redirects to the URL without.
3. A POST comes from a page of the console: `Sec-Fetch-Site` and `Origin` say so, and the form has
   the secret of this browser (its cookie is `HttpOnly` and `SameSite=Strict`).

Answers forbid scripts, styles and frames of others (content security policy), and caches.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, ImmutableMultiDict, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import ValidationError

#: the longest body of a POST: an edited message is the largest
MOST_BYTES = 24 * 1024 * 1024
_BROWSER = "penstock_browser"
_SHORTEST_TOKEN = 16

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # `no-referrer` would also remove `Origin` from our forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Refused(Exception):
    """The request is refused; the page says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


Refuse = Callable[[Request, Refused], Response]


class Gate:
    """Lets requests through that may see the console, and adds the headers to every answer."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        token: str | None,
        refuse: Refuse,
        end_streams: Callable[[], None] = lambda: None,
    ) -> None:
        if token is not None and len(token) < _SHORTEST_TOKEN:
            expected = f"at least {_SHORTEST_TOKEN} characters that nobody can guess"
            raise ValidationError("token", "•••", expected)
        self._app, self._token, self._refuse = app, token, refuse
        #: ends the streams of all viewers, so that a server can end
        self.end_streams = end_streams
        self._hosts = frozenset(one.lower().strip("[]") for one in hosts)
        #: served on all addresses: any of them can be asked for. A name is what rebinding needs
        self._everywhere = bool(self._hosts & {"0.0.0.0", "::"})
        # cookies of a host are the same on all ports: two consoles must not share one
        self._cookie = f"penstock_{_derived(token or '', 'cookie')[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        request = Request(scope, receive)
        cookie = request.cookies.get(_BROWSER, "")
        fresh = "" if len(cookie) == 43 else secrets.token_urlsafe(32)
        scope.setdefault("state", {})["csrf"] = _derived(fresh or cookie, "csrf")
        answer = self._app
        try:
            answer = self._check(request) or self._app
        except Refused as refused:
            answer = self._refuse(request, refused)
        await answer(scope, receive, self._protected(request, fresh, send))

    def _check(self, request: Request) -> Response | None:
        """Raise if the request is refused; return the answer to a token, None to go on."""
        self._check_host(request)
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refused(405, f"{request.method} is not a method of the console")
        if request.method == "POST":
            _check_origin(request)
        if _path(request).startswith("/static/"):
            return None
        if self._token is None or _path(request) == "/login":
            return None
        if given := request.query_params.get("token"):
            if not self.is_token(given):
                raise Refused(401, "The token is wrong.")
            return self.admit(request, _without_token(request))
        if not self._is_admitted(request):
            raise Refused(401, "A token is needed.")
        return None

    def _check_host(self, request: Request) -> None:
        host = _hostname(request.headers.get("host", ""))
        if not {"*", host} & self._hosts and not (self._everywhere and _is_address(host)):
            raise Refused(
                421,
                f"The console is not served as {host or 'an unnamed host'}: name it with "
                "--served-as, or hosts=",
            )

    def _is_admitted(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(given.strip())
        session = _derived(self._token or "", "session")
        return hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), session.encode())

    def is_token(self, given: str) -> bool:
        """Whether this is the token, in the same time whatever is given."""
        return hmac.compare_digest(
            _derived(given, "token").encode(), _derived(self._token or "", "token").encode()
        )

    def admit(self, request: Request, to: str) -> Response:
        """Redirect to a page, with the cookie that admits this browser."""
        answer = RedirectResponse(to, status_code=303)
        _set_cookie(answer, request, self._cookie, _derived(self._token or "", "session"))
        return answer

    def _protected(self, request: Request, fresh: str, send: Send) -> Send:
        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                static = _path(request).startswith("/static/")  # asked again whether it has changed
                headers.setdefault("Cache-Control", "no-cache" if static else "no-store")
                if fresh and headers.get("content-type", "").startswith("text/html"):
                    answer = Response()
                    _set_cookie(answer, request, _BROWSER, fresh)
                    headers.append("set-cookie", answer.headers["set-cookie"])
            await send(message)

        return protected


def base(scope: Scope) -> str:
    """Return the path under which the console is mounted: '' or '/console'."""
    return str(scope.get("root_path", "")).rstrip("/")


def _path(request: Request) -> str:
    return request.scope["path"].removeprefix(base(request.scope)) or "/"


def _hostname(host: str) -> str:
    """Return the name or address of a `Host` header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:  # a bracket that is not closed
        return ""


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _without_token(request: Request) -> str:
    query = [one for one in parse_qsl(request.url.query, True) if one[0] != "token"]
    path: str = request.scope["path"]
    return f"{path}?{urlencode(query)}" if query else path


def _check_origin(request: Request) -> None:
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if site != "same-origin" or (origin is not None and urlsplit(origin).netloc != host):
        raise Refused(403, "This form was not sent by a page of the console.")


async def read_form(request: Request) -> ImmutableMultiDict[str, str]:
    """Return the fields of a form of ours, or refuse it."""
    headers = Headers(scope=request.scope)
    kind = headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "Expected a form: application/x-www-form-urlencoded.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise Refused(413, f"The form is longer than {MOST_BYTES:,} bytes.")
    form: ImmutableMultiDict[str, str] = ImmutableMultiDict(
        parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    )
    given, expected = str(form.get("csrf", "")), str(request.scope["state"]["csrf"])
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Refused(
            403, "This form is not of this browser's session: load the page again, then repeat it."
        )
    return form


def _derived(secret: str, purpose: str) -> str:
    key = secret.encode("utf-8", "surrogatepass")
    return hmac.new(key, f"penstock console {purpose}".encode(), hashlib.sha256).hexdigest()


def _set_cookie(answer: Response, request: Request, name: str, value: str) -> None:
    answer.set_cookie(
        name,
        value,
        path=base(request.scope) or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
