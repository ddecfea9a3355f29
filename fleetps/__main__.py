"""The `fleetps` command, and `python -m fleetps`: Ctrl-C is heard from the beginning."""

import sys

try:
    from fleetps.cli import main
except KeyboardInterrupt:
    sys.stderr.write("stopped by Ctrl-C\n")
    sys.exit(143)

if __name__ == "__main__":
    main()
