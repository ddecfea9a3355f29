"""HTTP around `JobService`: POST /v1/<method>; and what is read, /, /status, /metrics and so on."""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from fleet_config.errors import FleetError, TryAgain
from fleetps.coordinator import requests
from fleetps.coordinator.exposition import Exposition
from fleetps.coordinator.messages import Events
from fleetps.coordinator.reports import Status
from fleetps.coordinator.service import JobService
from fleetps.coordinator.targets import Target, targets

_log = logging.getLogger(__name__)
_OPEN = ("/health",)
# The status page: its files, and that it gets nothing from anywhere else.
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}

Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: JobService, token: str | None) -> FastAPI:
    app = FastAPI(title="FleetPS coordinator", docs_url=None, redoc_url=None, openapi_url=None)
    _refuse_in_words(app)
    if token:
        _ask_for_token(app, token)
    for name, model in requests.METHODS.items():
        _add_method(app, service, name, model)
    _add_pages(app, service)
    return app


def _add_method(
    app: FastAPI, service: JobService, name: str, model: type[requests.Arguments]
) -> None:
    method: Callable[..., BaseModel] = getattr(service, name)

    # Not `async`: it runs in a thread, so that a slow disk does not stop /health.
    def call(arguments: model) -> Response:  # type: ignore[valid-type]
        answer = method(**arguments.as_keywords())  # type: ignore[attr-defined]
        return Response(answer.model_dump_json(), media_type="application/json")

    call.__annotations__["arguments"] = model
    app.post(f"/v1/{name}", response_model=None)(call)


def _add_pages(app: FastAPI, service: JobService) -> None:
    exposition = Exposition(service)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/status")
    def status() -> Status:
        return service.status()

    @app.get("/events")
    def events(after: int = 0) -> Events:
        return service.events(after)

    @app.get("/metrics")
    def metrics() -> Response:
        text, content_type = exposition.text()
        return Response(text, headers={"Content-Type": content_type})

    @app.get("/targets")
    def scraped() -> list[Target]:
        return targets(service.status())

    for path, (name, media_type) in _PAGE.items():
        _add_file(app, path, name, media_type)


def _add_file(app: FastAPI, path: str, name: str, media_type: str) -> None:
    content = (files("fleetps.coordinator") / "page" / name).read_bytes()

    @app.get(path)
    async def page() -> Response:
        return Response(content, media_type=media_type, headers=_PAGE_HEADERS)


def _ask_for_token(app: FastAPI, token: str) -> None:
    @app.middleware("http")
    async def check(request: Request, call_next: Handler) -> Response:
        given = _given_token(request.headers.get("Authorization", ""))
        if request.url.path in _OPEN or hmac.compare_digest(given, token.encode()):
            return await call_next(request)
        refusal = _refusal(401, "user", "the token is missing or wrong")
        refusal.headers["WWW-Authenticate"] = 'Basic realm="FleetPS (password: the token)"'
        return refusal


def _given_token(header: str) -> bytes:
    """Bearer for programs; Basic with any user name and the token as password for browsers."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.encode()
    try:
        return base64.b64decode(value).partition(b":")[2] if scheme.lower() == "basic" else b""
    except binascii.Error:
        return b""


def _refuse_in_words(app: FastAPI) -> None:
    @app.exception_handler(FleetError)
    async def refused(_: Request, error: FleetError) -> Response:
        kind = "try_again" if isinstance(error, TryAgain) else "user"
        return _refusal(409, kind, str(error))

    @app.exception_handler(RequestValidationError)
    async def misshapen(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return _refusal(422, "user", f"the request is not valid: {where}: {first['msg']}")


def _refusal(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": {"kind": kind, "message": message}}, status_code=status)
