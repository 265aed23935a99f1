"""What servers of the InfluxDB family answer: their JSON as structs, and what to do about a refusal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from fleetgp.errors import StorageError

Verdict = Literal["wait", "split", "denied"]
Cell = int | float | str | bool | None

MAX_RETRY_AFTER_S = 300.0
_MAX_DETAIL = 300
_BAD_LINES = frozenset((400, 413, 422))
_LATER = frozenset((408, 425, 429))


class InfluxError(StorageError):
    """The server did not do what was asked.

    verdict: ``wait`` = the same may go well later; ``split`` = something in what was sent is bad; ``denied`` = it will not
    go well before somebody changes a setting or a right. retry_after_s: how long the server wants to be left alone, 0 = it
    did not say. detail: the server's own words, or those of the system. status: of its HTTP answer, 0 = it gave none.
    """

    def __init__(
        self, message: str, verdict: Verdict, detail: str, retry_after_s: float = 0.0, *, status: int = 0
    ) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.status = status

    @property
    def is_stubborn(self) -> bool:
        """Whether it may be what was sent that makes the server fail, or not answer, however often it is tried."""
        return self.verdict == "wait" and self.status not in _LATER and not self.retry_after_s


class Table(msgspec.Struct, frozen=True):
    """Rows of one group of an InfluxQL answer. columns: names, ``time`` first; times are ns since 1970."""

    name: str = ""
    tags: dict[str, str] = {}
    columns: list[str] = []
    values: list[list[Cell]] = []


class Result(msgspec.Struct, frozen=True):
    """The answer to one statement, or a part of it."""

    statement_id: int = 0
    series: list[Table] = []
    error: str = ""


class Reply(msgspec.Struct, frozen=True):
    """One line of an answer of ``/query``."""

    results: list[Result] = []
    error: str = ""


class _Complaint(msgspec.Struct):
    error: str = ""
    message: str = ""


def read_reply(line: bytes, where: str) -> Reply:
    """One JSON line of an answer. Raises InfluxError when it is none."""
    try:
        return msgspec.json.decode(line, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise InfluxError(
            f"{where} answers a query with something else than InfluxDB does ({err}); is store.url right?",
            "denied",
            str(err),
        ) from err


def refusal(where: str, database: str, status: int, body: bytes, headers: Mapping[str, str]) -> InfluxError:
    """The error for an HTTP status that is no success; headers: names in lower case."""
    detail = _words(body) or headers.get("x-influxdb-error", "") or f"HTTP status {status}"
    if status in _LATER or status >= 500:
        after_s = _seconds(headers.get("retry-after", ""))
        return InfluxError(f"{where} does not take it now: {detail}", "wait", detail, after_s, status=status)
    if status in _BAD_LINES and "database is required" not in detail:
        return InfluxError(f"{where} refuses what was sent: {detail}", "split", detail, status=status)
    match status:
        case 401:
            advice = "check store.username and store.password, or store.token"
        case 403:
            advice = f"give this user the right to read and write {database!r}"
        case 404:
            advice = (
                "the bridge makes the database of a 1.x where its login may, else make it (influx -execute "
                f"'CREATE DATABASE \"{database}\"'); a bucket of 2.x is made by you, and mapped to be read (influx v1 dbrp "
                "create); or mend store.database"
            )
        case _:
            advice = "is store.url the address of an InfluxDB?"
    return InfluxError(f"{where} answers {status} ({detail}); {advice}", "denied", detail, status=status)


def unreachable(where: str, err: Exception) -> InfluxError:
    """The error for a server that did not answer at all, or not in time."""
    detail = (err.strerror if isinstance(err, OSError) else "") or str(err) or type(err).__name__
    return InfluxError(f"{where} does not answer: {detail}", "wait", detail)


def _words(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=_Complaint)
        text = said.error if not said.message else said.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = re.sub(r"<[^>]*>", " ", body.decode("utf-8", "replace"))
    return " ".join(text.split())[:_MAX_DETAIL]


def _seconds(text: str) -> float:
    """Retry-After in seconds; a date, or nothing sensible, is 0."""
    return min(float(text), MAX_RETRY_AFTER_S) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text.strip()) else 0.0
