"""Lines to ``/api/v2/write`` by influxdb-client's synchronous API: InfluxDB 2.x, 3.x and VictoriaMetrics."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgp.errors import ConfigError
from fleetgp.runtime.influx import Access
from fleetgp.runtime.influx_answers import refusal, unreachable

try:
    from influxdb_client.client.influxdb_client import InfluxDBClient
    from influxdb_client.client.write_api import SYNCHRONOUS
    from influxdb_client.rest import ApiException
    from urllib3 import Retry
    from urllib3.exceptions import HTTPError
except ImportError as missing:
    raise ConfigError(
        "store.kind",
        "writing to InfluxDB 2 or 3 or VictoriaMetrics needs influxdb-client: pip install 'fleetgp[influx]'",
    ) from missing


class ClientWriter:
    """One write is one request, tried once: what to do about a refusal is decided by whoever asked."""

    def __init__(self, access: Access, where: str) -> None:
        self._access = access
        self._where = where
        self._client = InfluxDBClient(
            access.url,
            token=access.token or (f"{access.username}:{access.password}" if access.username else ""),
            org=access.org or "-",
            timeout=round(access.timeout_s * 1000),
            retries=Retry(0),
        )
        self._api = self._client.write_api(write_options=SYNCHRONOUS)

    def write(self, lines: Sequence[str]) -> None:
        """Raises InfluxError."""
        bucket = self._access.database
        try:
            self._api.write(bucket, self._access.org or "-", list(lines))
        except ApiException as err:
            headers = {name.lower(): value for name, value in (err.headers or {}).items()}
            body = err.body if isinstance(err.body, bytes) else str(err.body or "").encode()
            raise refusal(self._where, bucket, err.status or 0, body, headers) from err
        except (HTTPError, OSError) as err:
            raise unreachable(self._where, err) from err

    def close(self) -> None:
        self._api.close()
        self._client.close()
