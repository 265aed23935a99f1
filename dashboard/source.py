"""The one door to the store: a poller that all sessions share, and the cached queries behind it."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pandas as pd
import streamlit as st

from dashboard import device_queries, queries
from dashboard.recent import Recent
from dashboard.view import Problem, View
from fleetgp.errors import StorageError
from fleetgp.runtime.clock import Clock, SystemClock
from fleetgp.runtime.settings import Settings, load
from fleetgp.store.base import Reader, SeriesInfo, Window
from fleetgp.store.open import location, open_reader, pointed_at
from fleetgp.store.sqlite import open_reader as open_file
from fleetgp.wire.messages import RoundNotice

MAX_EVENTS = 500
MAX_ROUNDS = 200
# how far back the first look goes for rounds that changed the basis, and how many of them are kept
FIRST_ROUNDS, MAX_CHANGES = 5000, 100

_keys = itertools.count()


class Store(Protocol):
    """Where a history is found. identity: changes when the file is replaced, None while there is none."""

    location: str

    def identity(self) -> Hashable | None: ...

    def open(self) -> Reader: ...


class StoreFile:
    """A history in a file, which may not be there yet, and may be deleted and made anew while we look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = str(path)

    def identity(self) -> Hashable | None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"cannot look at {self.path}: {error.strerror}") from error
        return stat.st_dev, stat.st_ino

    def open(self) -> Reader:
        return open_file(self.path)


class StoreServer:
    """A history that a server keeps. It is there or does not answer, but never another one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.location = location(settings)

    def identity(self) -> Hashable | None:
        return self.location

    def open(self) -> Reader:
        return open_reader(self._settings)


def find_store(name: str, environment: Mapping[str, str]) -> Store:
    """A file, or ``http://HOST:PORT/DATABASE``. environment: settings that say how to be let in there."""
    if "://" not in name:
        return StoreFile(Path(name))
    return StoreServer(pointed_at(load(None, environment, {}), name))


class Source:
    """Looks into the store about once per ``refresh_s``, however many sessions ask, and never raises StorageError.

    key: tells this source from any other in Streamlit's caches.
    """

    def __init__(self, store: Store, *, clock: Clock, refresh_s: float = 2.0) -> None:
        self.key = next(_keys)
        self.refresh_s = refresh_s
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._identity: Hashable | None = None
        self._recent = Recent()
        self._changes: tuple[RoundNotice, ...] | None = None  # None: nothing was read yet
        self._looked_s = float("-inf")
        self._view = View(version=0, looked_ms=clock.now_ms(), location=store.location)

    def look(self) -> View:
        """The newest view; reads the store unless the last look is fresh."""
        with self._lock:
            # A browser that ticks every refresh_s is now and then a little early; it shall not have to wait a whole tick.
            if self._clock.monotonic_s() - self._looked_s >= 0.75 * self.refresh_s:
                self._view = self._read()
                self._looked_s = self._clock.monotonic_s()
            return self._view

    def window(self, agent: str, columns: Sequence[str], start_ms: int, end_ms: int, max_points: int) -> Window | None:
        """Predictions of an agent, None where the store is gone or refuses."""
        with self._lock:
            if self._reader is None:
                return None
            try:
                return self._reader.window("prediction", agent, columns, start_ms, end_ms, max_points)
            except StorageError:
                self._drop()
                return None

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _read(self) -> View:
        try:
            identity = self._store.identity()
            if identity is None:
                self._drop()
                return self._without(Problem("missing", ""))
            if identity != self._identity:
                self._drop()
            if self._reader is None:
                self._reader, self._identity = self._store.open(), identity
            return self._collect(self._reader)
        except StorageError as error:
            self._drop()
            return self._without(Problem("unreadable", str(error)))

    def _collect(self, reader: Reader) -> View:
        statuses = tuple(reader.statuses())
        predictions: dict[str, SeriesInfo] = {series.name: series for series in reader.series("prediction")}
        intervals = {s.name: s.schema.interval_ms for s in statuses if s.schema is not None}
        now_ms = self._clock.now_ms()
        self._recent.update(reader, predictions, intervals, now_ms)
        rounds = reader.rounds(limit=FIRST_ROUNDS if self._changes is None else MAX_ROUNDS)
        self._changes = _newest_changes(rounds, self._changes or ())
        view = View(
            version=self._view.version,
            looked_ms=self._view.looked_ms,
            location=self._store.location,
            info=reader.info(),
            statuses=statuses,
            healths=tuple(reader.healths()),
            events=tuple(reader.events(limit=MAX_EVENTS)),
            rounds=tuple(rounds[:MAX_ROUNDS]),
            changes=self._changes,
            readings=tuple(reader.series("reading")),
            predictions=predictions,
            recent=self._recent.windows(),
            noticed_ms=self._recent.noticed_ms(),
        )
        return self._numbered(view, now_ms)

    def _without(self, problem: Problem) -> View:
        view = View(
            version=self._view.version, looked_ms=self._view.looked_ms, location=self._store.location, problem=problem
        )
        return self._numbered(view, self._clock.now_ms())

    def _numbered(self, view: View, now_ms: int) -> View:
        """The view with the time of the look, and a new version where it shows anything new."""
        is_news = self._looked_s == float("-inf") or _facts(view) != _facts(self._view)
        return replace(view, looked_ms=now_ms, version=self._view.version + is_news)

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._identity = None, None
        self._recent, self._changes = Recent(), None


def _newest_changes(rounds: Sequence[RoundNotice], known: Sequence[RoundNotice]) -> tuple[RoundNotice, ...]:
    """Rounds that tell of a change, those known and those among rounds, newest first."""
    found = {(notice.at_ms, notice.round): notice for notice in (*known, *filter(queries.tells_change, rounds))}
    return tuple(found[key] for key in sorted(found, reverse=True)[:MAX_CHANGES])


def _facts(view: View) -> tuple[object, ...]:
    return view.problem, view.statuses, view.healths, view.events, view.rounds, view.readings, view.predictions


@st.cache_resource(max_entries=4, show_spinner=False, on_release=Source.close)
def shared(path: str, refresh_s: float) -> Source:
    """The source on that file, one for all sessions of this server."""
    return Source(find_store(path, os.environ), clock=SystemClock(), refresh_s=refresh_s)


# Frames are cached by the version of the view, so that ten viewers cost as much as one.


@st.cache_data(ttl=60, max_entries=8, show_spinner=False)
def quality(key: int, version: int, _view: View) -> pd.DataFrame:
    """Coverage and skill per agent, see ``queries.quality_frame``."""
    return queries.quality_frame(_view)


@st.cache_data(ttl=60, max_entries=32, show_spinner=False)
def device(
    key: int, version: int, look: device_queries.Look, _source: Source, _view: View
) -> device_queries.DeviceData | None:
    """All that the device page draws, None where the store has no frames of the agent."""
    request = device_queries.device_request(_view, look.agent, look.span_ms, look.with_layers)
    if request is None:
        return None
    window = _source.window(look.agent, request.columns, request.start_ms, request.end_ms, request.max_points)
    return device_queries.device_data(_view, look.agent, window, look.zone) if window is not None else None
