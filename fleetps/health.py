"""Whether the process of this container is well: `python -m fleetps.health`, exit code 0 or 1.

What role it has follows from the environment, as for train.py.
"""

import os
import sys
import urllib.request

from fleet_config.endpoints import Endpoint, parse_endpoint
from fleet_config.errors import FleetError
from fleet_config.roles import Role, resolve_role

_SECONDS = 3.0


def address_of(role: Role) -> str | None:
    """Who has to answer: the coordinator itself; the Paddle server; a worker's coordinator.

    A worker opens no port. Its agent ends with it, so that its container would not run any more.
    """
    if role.kind == "server":
        return role.endpoint
    if role.kind == "coordinator":
        return str(Endpoint("127.0.0.1", parse_endpoint(role.coordinator or "", "").port))
    return role.coordinator


def main() -> int:
    try:
        address = address_of(resolve_role(os.environ))
        if address is not None:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(f"http://{address}/health", timeout=_SECONDS).close()
    except (FleetError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
