"""``python -m broker_bridge``: the bridge without the dispatcher."""

import sys

from broker_bridge.cli import bridge
from fleetgp.errors import FleetError

if __name__ == "__main__":
    try:
        sys.exit(bridge(sys.argv[1:]))
    except FleetError as error:
        print(f"fleetgp bridge: {error}", file=sys.stderr)
        sys.exit(2)  # as the dispatcher does
