"""Parquet recordings, read by batches of rows: their cells as the text that a CSV file would hold.

Times keep their zone, and are wall times where they have none; fields of structures are named with dots.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetgp.errors import RecordingError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 4096
MAGIC = b"PAR1"


def rows(path: Path) -> Iterator[list[str]]:
    """Column names, then rows as text, "" where missing.

    Raises RecordingError when the file cannot be opened or is damaged, ImportError where pyarrow is not installed.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            header = _flat(file.schema_arrow.empty_table()).column_names
            if not header:
                raise RecordingError(f"{path} has no column")
            yield header
            for batch in file.iter_batches(BATCH_ROWS):
                table = _flat(pa.Table.from_batches([batch]))
                yield from map(list, zip(*(_texts(column) for column in table.columns), strict=True))
    except FileNotFoundError:
        raise RecordingError(f"there is no file {path}") from None
    except (pa.ArrowException, OSError) as err:
        raise RecordingError(f"{path} cannot be read: {str(err).splitlines()[0]}") from err


def _flat(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _texts(column: pa.ChunkedArray) -> list[str]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind):
        # Python's times have no nanoseconds; readings are told apart by milliseconds
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        return ["" if value is None else value.isoformat() for value in column.to_pylist()]
    if pa.types.is_boolean(kind):
        return ["" if value is None else str(int(value)) for value in column.to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]
