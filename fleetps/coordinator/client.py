"""The coordinator's methods over HTTP, retried up to a deadline while the coordinator restarts."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import httpx
from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from fleet_config.errors import TryAgain, UserError
from fleetps.coordinator.access import TOKEN, TOKEN_FILE, read_token
from fleetps.coordinator.messages import Events
from fleetps.coordinator.metrics import check_loss
from fleetps.coordinator.protocol import Coordinator
from fleetps.coordinator.reports import Status
from fleetps.coordinator.requests import answer_of

ADDRESS = "FLEETPS_COORDINATOR"
PATIENCE = "FLEETPS_PATIENCE"
_DEADLINE = 30.0
_LONGEST_REQUEST = 10.0
_LONGEST_PAUSE = 1.0
Method = TypeVar("Method", bound=Callable[..., Any])
Answer = TypeVar("Answer")


class _Unavailable(Exception):
    """Worth another attempt: nobody answers, or the answer is a server error."""


def _over_http(method: Method) -> Method:
    """The same method as a call of POST /v1/<method>."""
    signature = inspect.signature(method)
    answer = answer_of(method)

    @functools.wraps(method)
    def call(client: CoordinatorClient, *positional: Any, **named: Any) -> Any:
        given = signature.bind(client, *positional, **named)
        given.apply_defaults()
        arguments = dict(list(given.arguments.items())[1:])  # without self
        return client.read(answer.validate_json, client.post(method.__name__, arguments))

    return cast(Method, call)


class CoordinatorClient:
    """See `protocol.Coordinator`. Threads may share a client.

    `deadline`: seconds for which a call may be retried before TryAgain. `close` ends waiting calls.
    `on_silence` is called before each attempt after the first.
    """

    def __init__(self, address: str, token: str | None = None, deadline: float = _DEADLINE) -> None:
        self.address = address
        self.on_silence: Callable[[], None] = lambda: None
        self._deadline = deadline
        self._closed = threading.Event()
        self._http = httpx.Client(
            base_url=f"http://{address}",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=min(_LONGEST_REQUEST, deadline),
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=2),
            trust_env=False,  # a proxy for the internet must not see the cluster's traffic
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> CoordinatorClient:
        """As the agent sets it for its child: FLEETPS_COORDINATOR, its patience and the token."""
        address = environ.get(ADDRESS)
        if not address:
            raise UserError(f"{ADDRESS} is not set: the agent gives it to the process it starts")
        return cls(address, read_token(environ), float(environ.get(PATIENCE, _DEADLINE)))

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the methods --

    size = _over_http(Coordinator.size)
    register = _over_http(Coordinator.register)
    rendezvous = _over_http(Coordinator.rendezvous)
    heartbeat = _over_http(Coordinator.heartbeat)
    fail = _over_http(Coordinator.fail)
    stop = _over_http(Coordinator.stop)
    checkpoint = _over_http(Coordinator.checkpoint)
    lease = _over_http(Coordinator.lease)
    progress = _over_http(Coordinator.progress)
    done = _over_http(Coordinator.done)
    failed = _over_http(Coordinator.failed)
    diverged = _over_http(Coordinator.diverged)
    part_done = _over_http(Coordinator.part_done)
    release = _over_http(Coordinator.release)
    arrive = _over_http(Coordinator.arrive)
    arrived = _over_http(Coordinator.arrived)
    clock = _over_http(Coordinator.clock)

    def status(self) -> Status:
        return self.read(Status.model_validate_json, self._call("GET", "/status", None))

    def events(self, after: int = 0) -> Events:
        content = self._call("GET", f"/events?after={after}", None)
        return self.read(Events.model_validate_json, content)

    # -- the wire --

    def post(self, method: str, arguments: dict[str, Any]) -> bytes:
        if arguments.get("request", "") is None:
            arguments["request"] = uuid.uuid4().hex  # one for all attempts of this call
        if "loss_sum" in arguments:
            check_loss(arguments["task_id"], arguments["loss_sum"])  # JSON has no NaN
        return self._call("POST", f"/v1/{method}", to_jsonable_python(arguments))

    def read(self, answer: Callable[[bytes], Answer], content: bytes) -> Answer:
        """What a coordinator answered; UserError: it was something else that listens there."""
        try:
            return answer(content)
        except ValidationError as error:
            raise self._something_else(httpx.codes.OK) from error

    def _call(self, verb: str, path: str, arguments: dict[str, Any] | None) -> bytes:
        attempts = Retrying(
            retry=retry_if_exception_type(_Unavailable),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
            stop=stop_after_delay(self._deadline) | stop_when_event_set(self._closed),
            sleep=sleep_using_event(self._closed),
            before_sleep=lambda _: self.on_silence(),
            reraise=True,
        )
        try:
            return attempts(self._once, verb, path, arguments)
        except _Unavailable as error:
            if self._closed.is_set():
                raise TryAgain(
                    f"the call to the coordinator at {self.address} was broken off"
                ) from error
            raise TryAgain(
                f"the coordinator at {self.address} has not answered for {self._deadline:g} s "
                f"({error})"
            ) from error

    def _once(self, verb: str, path: str, arguments: dict[str, Any] | None) -> bytes:
        if self._closed.is_set():
            raise _Unavailable("closed")
        try:
            answer = self._http.request(verb, path, json=arguments)
        except httpx.TransportError as error:
            raise _Unavailable(str(error) or type(error).__name__) from error
        except RuntimeError as error:
            if not self._closed.is_set():
                raise
            raise _Unavailable("closed in the middle") from error
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise _Unavailable(f"HTTP status {answer.status_code}")
        if answer.status_code != httpx.codes.OK:
            raise self._refusal(answer)
        return answer.content

    def _refusal(self, answer: httpx.Response) -> UserError | TryAgain:
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return UserError(
                f"the coordinator at {self.address} refused the token: set {TOKEN} or {TOKEN_FILE} "
                "to the same token in all processes of the job"
            )
        try:
            error = answer.json()["error"]
            kind, message = error["kind"], str(error["message"])
        except (ValueError, LookupError, TypeError):
            return self._something_else(answer.status_code)
        return TryAgain(message) if kind == "try_again" else UserError(message)

    def _something_else(self, status: int) -> UserError:
        return UserError(
            f"what listens at {self.address} is not a FleetPS coordinator of this version "
            f"(HTTP status {status:d}); check the address"
        )
