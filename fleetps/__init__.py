"""FleetPS: click-through-rate models on Paddle's parameter servers."""

__version__ = "0.1.0"
