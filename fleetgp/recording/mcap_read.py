"""Reads MCAP recordings from the first byte to the last, ours and those of other programs, whole or damaged."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Metadata

from fleetgp.errors import RecordingError
from fleetgp.recording.mcap_chunk import (
    DAMAGED,
    Described,
    Numbered,
    add_channel,
    described,
    read_message,
    read_records,
    times_of,
    unpack,
)
from fleetgp.recording.mcap_file import Damaged, Record, RecordFile
from fleetgp.recording.mcap_glance import place_of
from fleetgp.recording.mcap_layout import END, SESSION
from fleetgp.recording.message import Gap, Message, Recorded

MAX_DAMAGES = 1000  # told one by one; more are only counted
_HEAD = struct.Struct("<BQ")
_DATA_END_BYTES, _FOOTER_BYTES = 4, 20
_MASK = 0xFFFFFFFF  # running numbers have four bytes
_BACKWARDS = 2**31  # that many missing: it went back instead


class Damage(NamedTuple):
    """A damaged place. offset: where in the file, bytes; lost: messages lost there, None where nobody can know."""

    offset: int
    why: str
    lost: int | None = 0


class Scan:
    """One pass over a file, with every CRC checked. Iterate once; what was learnt stands in the attributes then.

    Strict, it raises RecordingError at the first damage. Else it notes the damage and goes on with the next whole chunk: what
    it returns is right as far as CRCs tell, and a Gap stands where messages were lost between others.

    begin_ns: messages before this time need not be read; where the file has an index, chunks that hold nothing else are passed
    over unread, and ``passed_over`` says how many messages and gaps of ours that were. Neither session nor hash are known then.

    session, end: metadata of the start and the close; is_closed: it was ended, not cut; damages: the first MAX_DAMAGES of
    damage_count; good_bytes: how far the file is whole; lost: messages known to be lost.
    """

    def __init__(self, path: Path, *, is_strict: bool, begin_ns: int | None = None) -> None:
        self.path = path
        self.session: dict[str, str] = {}
        self.end: dict[str, str] = {}
        self.is_closed = False
        self.damages: list[Damage] = []
        self.damage_count = 0
        self.good_bytes = 0
        self.lost = 0
        self.passed_over = 0
        self._begin_ns = begin_ns
        self._is_part = False
        self._is_strict = is_strict
        self._channels: dict[int, Described] = {}
        self._sequence = 0
        self._offset = 0  # of the record that is read
        self._has_chunks = False
        self._last_ns: int | None = None
        self._is_after_damage = False

    def __iter__(self) -> Iterator[Recorded]:
        """Messages and gaps in the file's order. Raises RecordingError; not strict, only where nothing is MCAP."""
        with RecordFile.open(self.path) as file:
            self._begin(file)
            if self._begin_ns is not None:
                self._pass_over(file, self._begin_ns)
            while (record := self._next_record(file)) is not None:
                if record.opcode == Opcode.DATA_END and self._ends(file, record):
                    if not self._goes_on(file, is_sound=self._check_index(file)):
                        return
                    continue
                for numbered in self._read(file, record):
                    yield from self._in_order(numbered)
                if not self.damage_count:
                    self.good_bytes = file.position
            self._note(file.position, "it is cut, or still being written: the end that closes a recording is missing")

    def _begin(self, file: RecordFile) -> None:
        try:
            file.read_magic()
        except Damaged as err:
            file.find_chunk(0)
            if file.position == file.size:
                raise RecordingError(f"{self.path} is not an MCAP file") from None
            self._note(0, str(err))

    def _pass_over(self, file: RecordFile, begin_ns: int) -> None:
        place = place_of(self.path, begin_ns)
        if place is None or not file.position < place.offset < file.size:
            return
        start, crc = file.position, file.crc
        file.move_to(place.offset)
        try:
            record = file.next_record()
        except Damaged:
            record = None
        if record is not None and record.opcode == Opcode.CHUNK and times_of(record.body) == place.times:
            self._channels = {channel.id: described(channel) for channel in place.channels}
            self._is_part = True
            start = place.offset
        file.move_to(start)
        file.crc = crc

    def _next_record(self, file: RecordFile) -> Record | None:
        while True:
            try:
                return file.next_record()
            except Damaged as err:
                self._note(file.position, str(err))
                file.find_chunk(file.position + 1)

    def _read(self, file: RecordFile, record: Record) -> list[Numbered]:
        """What one record brings; nothing where it is damaged."""
        self._offset = record.offset
        try:
            return self._content(record)
        except DAMAGED as err:
            self._note(record.offset, str(err) if isinstance(err, Damaged) else f"a damaged record ({err})")
            if not file.seems_in_step():  # its length was not to be trusted
                file.find_chunk(record.offset + 1)
            return []

    def _content(self, record: Record) -> list[Numbered]:
        body = record.body
        if record.opcode == Opcode.CHUNK:
            self._has_chunks = True
            return read_records(unpack(body), self._channels)
        if record.opcode == Opcode.MESSAGE_INDEX:
            if int.from_bytes(body[2:6], "little") != len(body) - 6:
                raise Damaged("a damaged index of a chunk")
        elif record.opcode == Opcode.METADATA:
            self._take_metadata(Metadata.read(ReadDataStream(BytesIO(body))))
        elif record.opcode in (Opcode.CHANNEL, Opcode.MESSAGE) and self._has_chunks:  # no CRC vouches for it
            raise Damaged("a message outside of chunks")
        elif record.opcode == Opcode.CHANNEL:  # as programs write it that make no chunks
            add_channel(body, self._channels)
        elif record.opcode == Opcode.MESSAGE:
            whole = _HEAD.pack(record.opcode, len(body)) + body
            return [read_message(whole, 0, len(whole), self._channels)]
        return []

    def _take_metadata(self, metadata: Metadata) -> None:
        if metadata.name == SESSION and not self.session:
            self.session = metadata.metadata
        elif metadata.name == END:
            self.end = metadata.metadata

    def _in_order(self, numbered: Numbered) -> Iterator[Recorded]:
        """The message; before it a gap, where a damage or its number says that some are missing."""
        sequence, recorded = numbered
        at_ns = recorded.received_ns if isinstance(recorded, Message) else recorded.start_ns
        if sequence is not None:
            if self._is_part and self._last_ns is None:
                self._sequence = self.passed_over = (sequence - 1) & _MASK
            missing = (sequence - self._sequence - 1) & _MASK
            self._sequence = sequence
            if missing:
                self._tell_lost(missing)
            else:
                self._tell_none_lost()
        elif self._is_after_damage:
            missing = -1
        else:
            missing = 0
        if missing and self._last_ns is not None:
            told = f"{missing:,} messages" if 0 < missing < _BACKWARDS else "messages"
            yield Gap(self._last_ns, max(at_ns, self._last_ns), f"{told} lost where the file is damaged")
        self._is_after_damage = False
        self._last_ns = at_ns
        yield recorded

    def _tell_lost(self, missing: int) -> None:
        """Add to what is known of the last damage that so many messages are missing; a damage of its own where there is none."""
        is_counted = missing < _BACKWARDS
        if not self._is_after_damage:
            self._note(self._offset, "messages are missing" if is_counted else "messages are not in their order")
        if is_counted:
            self.lost += missing
            self.damages[-1] = self.damages[-1]._replace(lost=missing)

    def _tell_none_lost(self) -> None:
        """The numbers go on behind a damage as if nothing had been there."""
        if self._is_after_damage and self.damages[-1].lost is None:
            self.damages[-1] = self.damages[-1]._replace(lost=0)

    def _ends(self, file: RecordFile, record: Record) -> bool:
        """Whether the data end here, as a record says that may be damaged itself."""
        if len(record.body) != _DATA_END_BYTES:
            self._note(record.offset, "a damaged end")
            file.find_chunk(record.offset + 1)
            return False
        self.is_closed = True
        written = [self.end.get(name, "") for name in ("messages", "gaps")]
        if all(count.isdecimal() for count in written):
            if missing := (sum(map(int, written)) - self._sequence) & _MASK:
                self._tell_lost(missing)
            else:
                self._tell_none_lost()
        told = int.from_bytes(record.body, "little")
        if told not in (0, record.crc_before) and not self._is_part and not self.damage_count:
            self._note(record.offset, "a byte between its chunks is wrong; no message is lost", lost=0)
        if not self.damage_count:
            self.good_bytes = file.position
        return True

    def _check_index(self, file: RecordFile) -> bool:
        """Whether what follows the data is whole."""
        start, file.crc = file.position, 0
        try:
            while (record := file.next_record()) is not None and record.opcode != Opcode.FOOTER:
                pass
            if record is None or len(record.body) != _FOOTER_BYTES:
                raise Damaged("its last bytes are missing")
            crc = zlib.crc32(_HEAD.pack(Opcode.FOOTER, _FOOTER_BYTES) + record.body[:-4], record.crc_before)
            if int.from_bytes(record.body[-4:], "little") not in (0, crc):
                raise Damaged("its check sum is wrong")
            file.read_magic()
        except Damaged as err:
            self._note(start, f"the index at its end is damaged ({err}); no message is lost", lost=0)
            return False
        if not self.damage_count:
            self.good_bytes = file.position
        return True

    def _goes_on(self, file: RecordFile, *, is_sound: bool) -> bool:
        """Whether another recording was put behind this one, as ``cat`` does; it is read too, from its first record or chunk."""
        behind = file.position
        if behind == file.size:
            return False
        try:
            file.read_magic()
        except Damaged:
            file.find_chunk(behind)
            if file.position == file.size and not is_sound:
                return False
            if file.position == file.size:
                count = f"{file.size - behind:,} bytes follow its end"
                self._note(behind, f"{count}; no message is lost", lost=0)
                return False
        self._note(behind, "another recording follows its end, which is read too", lost=0)
        self._channels, self._sequence, self._has_chunks, self._is_after_damage = {}, 0, False, False
        self.end, self.is_closed = {}, False
        return True

    def _note(self, offset: int, why: str, lost: int | None = None) -> None:
        if self._is_strict:
            raise RecordingError(
                f"{self.path} is damaged at byte {offset:,}: {why}; fleetgp recordings recover saves what can be read"
            )
        self._is_after_damage = True
        self.damage_count += 1
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(Damage(offset, why, lost))
