"""What the writer and the readers of MCAP recordings agree on: names, sizes, how a message lies in a chunk."""

from __future__ import annotations

from struct import Struct

MAGIC = b"\x89MCAP0\r\n"
PROFILE = "fleetgp"
SESSION = "fleetgp.session"  # the metadata record at the start
END = "fleetgp.end"  # and the one at the close
GAP_TOPIC = "$fleetgp/gap"
HOLDS = "holds"  # key in a channel's metadata; "gap" where it holds gaps, not messages
CHUNK_BYTES = 65_536
MAX_CHANNELS = 65_535  # channels have two bytes for their number
MESSAGE = Struct(
    "<BQHIQQ"
)  # opcode, length of what follows, channel, sequence, log time, publish time; then the payload
