"""One form of bytes for a recorded message, whatever file holds it, and the hash over all of a recording."""

from __future__ import annotations

import hashlib
from struct import Struct

from fleetgp.recording.message import Gap, Message, Recorded

_MESSAGE = Struct("<sIIIqqBB")  # "M", lengths of topic, payload and content type, both times, QoS, retained
_GAP = Struct("<sIqq")  # "G", length of the reason, both times


def canonical(recorded: Recorded) -> bytes:
    """Bytes that tell two recorded messages, or gaps, apart if anything in them differs."""
    if isinstance(recorded, Gap):
        why = recorded.why.encode()
        return _GAP.pack(b"G", len(why), recorded.start_ns, recorded.end_ns) + why
    topic, payload, received_ns, published_ns, qos, is_retained, content_type = recorded
    name, kind = topic.encode(), content_type.encode()
    lengths = (len(name), len(payload), len(kind))
    return _MESSAGE.pack(b"M", *lengths, received_ns, published_ns, qos, is_retained) + name + payload + kind


class Digest:
    """SHA-256 over all messages and gaps of a recording in their order, and how many there were."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.messages = 0
        self.gaps = 0

    def add(self, recorded: Recorded) -> None:
        self._hash.update(canonical(recorded))
        if isinstance(recorded, Message):
            self.messages += 1
        else:
            self.gaps += 1

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
