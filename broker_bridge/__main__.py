"""``python -m broker_bridge``: the bridge without the dispatcher."""

import sys

from broker_bridge.cli import bridge
from fleetgp.errors import FleetError

if __name__ == "__main__":
    try:
        sys.exit(bridge(sys.argv[1:]))
    except FleetError as error:
        sys.exit(f"fleetgp bridge: {error}")
