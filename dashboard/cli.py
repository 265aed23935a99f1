"""The ``fleetgp dashboard`` command: starts the web server and says where it is."""

from __future__ import annotations

from collections.abc import Mapping

THEME = ("--theme.light.primaryColor", "#0072b2", "--theme.dark.primaryColor", "#56b4e9")
START_WITHIN_S = 60.0


def dashboard(argv: list[str]) -> int:
    """Show the fleet in a browser: who is alive, what was predicted, what is odd, what rounds cost.

    Runs until Ctrl-C or SIGTERM and returns 0. Raises ConfigError on a wrong setting, ServiceError on a port in use.
    """
    import argparse
    import os

    from fleetgp.runtime.arguments import add_arguments, from_arguments
    from fleetgp.store.open import as_environment, history_path, is_influx, location, pointed_at

    parser = argparse.ArgumentParser(
        prog="fleetgp dashboard",
        description="Shows the history that the bridge keeps, live. It reads the history only, so it may start first.",
    )
    parser.add_argument(
        "--store", metavar="PATH", help="history to show: a file, or http://HOST:8086/DATABASE (settings store...)"
    )
    parser.add_argument("--port", metavar="PORT", type=int, help="0 = any free port (setting dashboard.port)")
    add_arguments(parser)
    args = parser.parse_args(argv)
    settings = from_arguments(args, os.environ)
    if args.store:
        settings = pointed_at(settings, args.store)
    store = location(settings) if is_influx(settings) else str(history_path(settings).resolve())
    host = settings.text("dashboard.host")
    port = free_port(host, settings.whole("dashboard.port") if args.port is None else args.port)
    # The page is a script of its own; this way no password stands among its arguments, which all users can see.
    environment = as_environment(settings)
    return serve(host, port, store=store, refresh_s=settings.number("dashboard.refresh_s"), environment=environment)


def free_port(host: str, port: int) -> int:
    """That port, or a free one for 0.  Raises ServiceError when it cannot be listened on."""
    import socket

    from fleetgp.errors import ServiceError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OverflowError as error:
            raise ServiceError(f"{port} is not a port; dashboard.port takes 0 (any free one) to 65535") from error
        except OSError as error:
            raise ServiceError(
                f"cannot listen on {host}:{port} ({error.strerror}); stop the other program, or choose another address with "
                "the settings dashboard.port (0 = any free one) and dashboard.host"
            ) from error
        bound: int = listener.getsockname()[1]
        return bound


def serve(host: str, port: int, *, store: str, refresh_s: float, environment: Mapping[str, str]) -> int:
    """Run Streamlit's server in this process until a signal ends it; prints the address once it answers.

    environment: variables that tell the page how to be let in to the store.
    """
    import os
    import sys
    import threading
    from pathlib import Path

    from streamlit.web import cli as streamlit_cli

    flags = ["--server.headless", "true", "--server.address", host, "--server.port", str(port)]
    flags += ["--server.fileWatcherType", "none", "--browser.gatherUsageStats", "false"]
    flags += ["--client.toolbarMode", "minimal", "--client.showErrorDetails", "type"]
    flags += ["--logger.hideWelcomeMessage", "true", *THEME]
    app = Path(__file__).with_name("app.py")
    announcer = threading.Thread(target=announce, args=(host, port), name="dashboard.announce", daemon=True)
    announcer.start()
    os.environ.update(environment)
    try:
        streamlit_cli.main(
            ["run", str(app), *flags, "--", "--store", store, "--refresh-s", str(refresh_s)], standalone_mode=False
        )
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdout.flush()
    return 0


def announce(host: str, port: int) -> None:
    """Print the address when the server there answers."""
    import http.client
    import threading
    import time

    reach = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    pause = threading.Event()
    until_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until_s:
        connection = http.client.HTTPConnection(reach, port, timeout=2)
        try:
            connection.request("GET", "/_stcore/health")
            if connection.getresponse().status == 200:
                print(f"Dashboard: http://{f'[{reach}]' if ':' in reach else reach}:{port}", flush=True)
                return
        except (OSError, http.client.HTTPException):
            pause.wait(0.1)
        finally:
            connection.close()
