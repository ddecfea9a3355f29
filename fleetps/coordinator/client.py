"""The coordinator's methods over HTTP, retried up to a deadline while the coordinator restarts."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping
from typing import Any

import httpx
from pydantic import TypeAdapter
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
from fleetps.coordinator.messages import (
    Arrived,
    Evaluation,
    Events,
    JobState,
    Lease,
    Registered,
    Rendezvous,
    TaskAnswer,
)
from fleetps.coordinator.metrics import check_loss
from fleetps.coordinator.reports import MemberRole, MemberState, Status

ADDRESS = "FLEETPS_COORDINATOR"
_LONGEST_REQUEST = 10.0
_LONGEST_PAUSE = 1.0
_LEASE: TypeAdapter[Lease] = TypeAdapter(Lease)


class _Unavailable(Exception):
    """Worth another attempt: nobody answers, or the answer is a server error."""


class CoordinatorClient:
    """See `messages.Coordinator`. Threads may share a client.

    `deadline`: seconds for which a call may be retried before TryAgain. `close` ends waiting calls.
    """

    def __init__(self, address: str, token: str | None = None, deadline: float = 30.0) -> None:
        self.address = address
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
    def from_environment(
        cls, environ: Mapping[str, str] = os.environ, deadline: float = 30.0
    ) -> CoordinatorClient:
        """As the agent sets it for its child: FLEETPS_COORDINATOR and the token."""
        address = environ.get(ADDRESS)
        if not address:
            raise UserError(f"{ADDRESS} is not set: the agent gives it to the process it starts")
        return cls(address, read_token(environ), deadline)

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the methods --

    def register(
        self,
        role: MemberRole,
        instance: str,
        address: str,
        rank: int | None = None,
        digest: str = "",
        agreement: dict[str, Any] | None = None,
    ) -> Registered:
        answer = self._post(
            "register",
            role=role,
            instance=instance,
            address=address,
            rank=rank,
            digest=digest,
            agreement=agreement,
        )
        return Registered.model_validate_json(answer)

    def rendezvous(self, instance: str) -> Rendezvous:
        return Rendezvous.model_validate_json(self._post("rendezvous", instance=instance))

    def heartbeat(self, instance: str, state: MemberState) -> JobState:
        return JobState.model_validate_json(self._post("heartbeat", instance=instance, state=state))

    def fail(
        self,
        instance: str,
        reason: str,
        log_tail: list[str] | None = None,
        exit_code: int | None = None,
    ) -> JobState:
        answer = self._post(
            "fail", instance=instance, reason=reason, log_tail=log_tail, exit_code=exit_code
        )
        return JobState.model_validate_json(answer)

    def stop(self, reason: str) -> JobState:
        return JobState.model_validate_json(self._post("stop", reason=reason))

    def lease(self, instance: str, request: str | None = None) -> Lease:
        request = request or uuid.uuid4().hex
        return _LEASE.validate_json(self._post("lease", instance=instance, request=request))

    def progress(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        extra: dict[str, float] | None = None,
    ) -> TaskAnswer:
        check_loss(task_id, loss_sum)
        answer = self._post(
            "progress",
            instance=instance,
            task_id=task_id,
            rows=rows,
            steps=steps,
            loss_sum=loss_sum,
            extra=extra,
        )
        return TaskAnswer.model_validate_json(answer)

    def done(
        self,
        instance: str,
        task_id: int,
        rows: int,
        steps: int,
        loss_sum: float,
        evaluation: Evaluation | None = None,
    ) -> TaskAnswer:
        check_loss(task_id, loss_sum)
        answer = self._post(
            "done",
            instance=instance,
            task_id=task_id,
            rows=rows,
            steps=steps,
            loss_sum=loss_sum,
            evaluation=evaluation.model_dump() if evaluation else None,
        )
        return TaskAnswer.model_validate_json(answer)

    def failed(self, instance: str, task_id: int, reason: str) -> TaskAnswer:
        answer = self._post("failed", instance=instance, task_id=task_id, reason=reason)
        return TaskAnswer.model_validate_json(answer)

    def release(self, instance: str) -> JobState:
        return JobState.model_validate_json(self._post("release", instance=instance))

    def arrive(self, instance: str, name: str) -> JobState:
        return JobState.model_validate_json(self._post("arrive", instance=instance, name=name))

    def arrived(self, name: str) -> Arrived:
        return Arrived.model_validate_json(self._post("arrived", name=name))

    def status(self) -> Status:
        return Status.model_validate_json(self._call("GET", "/status", None))

    def events(self, after: int = 0) -> Events:
        return Events.model_validate_json(self._call("GET", f"/events?after={after}", None))

    # -- the wire --

    def _post(self, method: str, **arguments: Any) -> bytes:
        return self._call("POST", f"/v1/{method}", arguments)

    def _call(self, verb: str, path: str, arguments: dict[str, Any] | None) -> bytes:
        attempts = Retrying(
            retry=retry_if_exception_type(_Unavailable),
            wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
            stop=stop_after_delay(self._deadline) | stop_when_event_set(self._closed),
            sleep=sleep_using_event(self._closed),
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
            return UserError(
                f"what listens at {self.address} is not a FleetPS coordinator of this version "
                f"(HTTP status {answer.status_code}); check the address"
            )
        return TryAgain(message) if kind == "try_again" else UserError(message)
