"""The job file with its model, of which fleet_config knows nothing."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fleet_config.explain import Problem
from fleet_config.job import Job, load_job


def checked_job(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), sizes: Sequence[str] = ()
) -> Job:
    """See `load_job`; the model's name and parameters are checked, too.

    Those of a file that imports Paddle itself are left to the processes that load it.
    """
    return load_job(path, overrides, sizes, _of_the_model)


def _of_the_model(job: Job) -> Iterator[Problem]:
    with _without_paddle():
        from fleetps import models  # noqa: PLC0415  not where Paddle would be loaded
    name = job.model.name
    if models.unread and name not in models.names():
        return
    try:
        models.parse_params(name, job.model.params)
    except models.ModelMistake as mistake:
        yield Problem(mistake.key, str(mistake))


@contextmanager
def _without_paddle() -> Iterator[None]:
    """Inside, importing Paddle fails at once in place of taking seconds, unless it is loaded."""
    if "paddle" in sys.modules:
        yield
        return
    sys.modules["paddle"] = None  # type: ignore[assignment]  # what Python has for this
    try:
        yield
    finally:
        del sys.modules["paddle"]
