"""Runs the checks and prints what they found."""

import os
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from fleet_config.errors import EXIT_OK, EXIT_USER, UserError
from fleet_config.job import Job
from fleet_config.roles import Role, resolve_role
from fleetps.checked_job import checked_job
from fleetps.doctor.finding import Finding, failing, ok
from fleetps.doctor.machine import machine_findings
from fleetps.doctor.network import role_findings
from fleetps.doctor.plan import plan
from fleetps.doctor.probe import probe
from fleetps.doctor.work import Here, job_findings
from fleetps.main import sizes_of

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def run(config: str | None, overrides: Sequence[str], *, dry_run: bool) -> int:
    """The command; its exit code is 0 where nothing failed."""
    if dry_run:
        if config is None:
            raise UserError("--dry-run needs a job: add --config, such as conf/quickstart.yaml")
        role = resolve_role(os.environ)
        _say(plan(config, checked_job(config, overrides, sizes_of(role)), role))
        return EXIT_OK
    findings = examine(config, overrides)
    _print(findings)
    return EXIT_USER if any(finding.level == "fail" for finding in findings) else EXIT_OK


def examine(config: str | None, overrides: Sequence[str]) -> list[Finding]:
    """All checks, those of a job only where it is named."""
    findings: list[Finding] = []
    role = None
    with failing("role", findings):
        role = resolve_role(os.environ)
    sizes = sizes_of(role) if role else []
    job = _job(config, overrides, sizes, findings)
    wanted = {"model": job.model.name, "params": job.model.params} if job else {}
    paddle = probe(wanted)
    findings += machine_findings(os.environ, paddle)
    if role is not None:
        findings += role_findings(role, os.environ)
    if job is not None:
        findings += job_findings(job, paddle, _here(job, role))
    return findings


def _here(job: Job, role: Role | None) -> Here:
    """Without a role the whole job is to run here."""
    if role is None or role.kind == "local":
        return Here(job.cluster.servers, job.cluster.workers)
    return Here(int(role.kind == "server"), int(role.kind == "worker"))


def _job(
    config: str | None, overrides: Sequence[str], sizes: Sequence[str], findings: list[Finding]
) -> Job | None:
    if config is None:
        return None
    with failing("job file", findings):
        job = checked_job(config, overrides, sizes)
        findings.append(ok("job file", f"{config}: job {job.job.name}, fingerprint {job.digest()}"))
        return job
    return None


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        line = Text.assemble(
            (f"{finding.level:<5}", _STYLES[finding.level]),
            f"{finding.subject:<{width}}  {finding.says}",
        )
        if finding.mend:
            line.append(f"\n{'':{width + 7}}-> {finding.mend}")
        lines.append(line)
    failed = sum(finding.level == "fail" for finding in findings)
    lines.append(Text(f"{failed} to mend" if failed else "nothing to mend"))
    _say(lines)


def _say(lines: Sequence[Text | str]) -> None:
    console = Console(highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
