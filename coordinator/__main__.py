"""``python -m coordinator``: the coordinator without the dispatcher."""

import sys

from coordinator.cli import coordinator
from fleetgp.errors import FleetError

if __name__ == "__main__":
    try:
        sys.exit(coordinator(sys.argv[1:]))
    except FleetError as error:
        print(f"fleetgp coordinator: {error}", file=sys.stderr)
        sys.exit(2)  # as the dispatcher does
