"""The one CPU setting that decides Paddle's speed.

Paddle's bundled MKL picks its kernels by the CPU's vendor and runs its slowest path on AMD.
MKL_DEBUG_CPU_TYPE, set before Paddle is loaded, makes it use AVX2 (5) or AVX-512 (7): about
twice as fast. A setting that the CPU can't run would crash it, so the flags decide.
"""

from pathlib import Path

MKL_VARIABLE = "MKL_DEBUG_CPU_TYPE"

_CPUINFO = Path("/proc/cpuinfo")
_AVX2 = {"avx2", "fma"}
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"}


def mkl_setting(cpuinfo: str | None = None) -> str | None:
    """The value for MKL_DEBUG_CPU_TYPE on this CPU, or None where it must not be set."""
    fields = cpu_fields(cpuinfo)
    if fields.get("vendor_id") != "AuthenticAMD":
        return None
    flags = set(fields.get("flags", "").split())
    if not flags >= _AVX2:
        return None
    return "7" if flags >= _AVX512 else "5"


def cpu_fields(cpuinfo: str | None = None) -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo (empty where there is none)."""
    if cpuinfo is None:
        try:
            cpuinfo = _CPUINFO.read_text(encoding="ascii", errors="replace")
        except OSError:
            return {}
    first = cpuinfo.strip().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
