"""`fleetps doctor`: what would go wrong, said before anything is started."""

from fleetps.doctor.report import run

__all__ = ["run"]
