"""This machine: Python, Paddle, CPU, name."""

import importlib.metadata
import os
import platform
import socket
import sys
from collections.abc import Iterator, Mapping

from fleet_config.cpu import MKL_VARIABLE, cpu_fields, mkl_setting
from fleetps.doctor.finding import Finding, fail, ok, warn
from fleetps.doctor.probe import Probe

_PYTHONS = ((3, 10), (3, 13))
_KERNELS = {"5": "AVX2", "7": "AVX-512"}


def machine_findings(environ: Mapping[str, str], paddle: Probe) -> Iterator[Finding]:
    """What any job needs of a machine."""
    yield _python()
    yield _paddle(paddle)
    yield _cpu(environ)
    yield _own_name()


def _python() -> Finding:
    version = platform.python_version()
    low, high = _PYTHONS
    if low <= sys.version_info < high:
        return ok("Python", version)
    return fail("Python", f"{version} has no Paddle 2.6.2", "use Python 3.10, 3.11 or 3.12")


def _paddle(probe: Probe) -> Finding:
    both = [_version(name) for name in ("paddlepaddle", "paddlepaddle-gpu")]
    if all(both):
        return fail(
            "Paddle",
            "paddlepaddle and paddlepaddle-gpu are both installed, over each other",
            "pip uninstall paddlepaddle paddlepaddle-gpu, then install one of them",
        )
    if probe.problem:
        return fail("Paddle", probe.problem)
    others = ", ".join(f"{name} {_version(name)}" for name in ("protobuf", "numpy"))
    return ok("Paddle", f"{probe.paddle} with its parameter server; {others}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu(environ: Mapping[str, str]) -> Finding:
    fields = cpu_fields()
    flags = fields.get("flags", "").split()
    name = f"{fields.get('model name', platform.machine())}, {os.cpu_count()} cores"
    if flags and "avx" not in flags:
        return fail("CPU", f"{name}: no AVX, without which Paddle crashes", "use another machine")
    best, given = mkl_setting(), environ.get(MKL_VARIABLE)
    if given and given != best:
        return warn(
            "CPU", f"{name}: {MKL_VARIABLE}={given} in the environment", f"unset {MKL_VARIABLE}"
        )
    if best:
        return ok("CPU", f"{name}; {MKL_VARIABLE}={best} is set for Paddle ({_KERNELS[best]})")
    if fields.get("vendor_id") == "AuthenticAMD":
        return warn("CPU", f"{name}: no AVX2, so Paddle computes several times slower")
    return ok("CPU", name)


def _own_name() -> Finding:
    """Each Paddle process binds to the address of its machine's name, and crashes without one."""
    name = socket.gethostname()
    try:
        return ok("host name", f"{name} is {socket.gethostbyname(name)}")
    except OSError:
        return fail(
            "host name",
            f"{name} has no address, without which Paddle crashes",
            f"add a line such as 127.0.1.1 {name} to /etc/hosts",
        )
