"""The hash over all of a recording, which is the same whatever form its file has."""

from __future__ import annotations

import hashlib
from struct import Struct

from fleetgp.recording.message import Gap, Recorded

_KIND = Struct("<sIIBB")  # "M", lengths of topic and content type, QoS, retained; then topic and content type
_MESSAGE = Struct("<qqI")  # both times, length of the payload; then the payload
_GAP = Struct("<sIqq")  # "G", length of the reason, both times; then the reason
_AT_ONCE = 512  # parts that are hashed together
_MOST_KINDS = 100_000  # that are remembered


class Digest:
    """SHA-256 over all that a recording holds in its order, and how many messages and gaps there were."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []
        self._kinds: dict[tuple[str, int, bool, str], bytes] = {}
        self.messages = 0
        self.gaps = 0

    def add(self, recorded: Recorded) -> None:
        if isinstance(recorded, Gap):
            self.gaps += 1
            why = recorded.why.encode()
            self._parts += (_GAP.pack(b"G", len(why), recorded.start_ns, recorded.end_ns), why)
        else:
            topic, payload, received_ns, published_ns, qos, is_retained, content_type = recorded
            self.messages += 1
            key = (topic, qos, is_retained, content_type)
            kind = self._kinds.get(key) or self._remember(key)
            self._parts += (kind, _MESSAGE.pack(received_ns, published_ns, len(payload)), payload)
        if len(self._parts) >= _AT_ONCE:
            self._take_in()

    def hexdigest(self) -> str:
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        self._hash.update(b"".join(self._parts))
        self._parts.clear()

    def _remember(self, key: tuple[str, int, bool, str]) -> bytes:
        topic, qos, is_retained, content_type = key
        name, kind = topic.encode(), content_type.encode()
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[key] = _KIND.pack(b"M", len(name), len(kind), qos, is_retained) + name + kind
        return self._kinds[key]
