"""Prints all rows of a directory of Parquet files as DuckDB reads them: one JSON object a line.

The argument is the directory. Each event is read alone, all its files by name of the columns.
"""

import glob
import json
import math
import os
import struct
import sys

import duckdb


def single(value):
    """The shortest number that is the same in 32 bits."""
    for digits in range(1, 18):
        short = float(f"{value:.{digits}g}")
        if struct.pack("f", short) == struct.pack("f", value):
            return short
    return value


def plain(value, of):
    """A value as what JSON has, by its type."""
    if value is None:
        return None
    kind = of.id
    if kind in ("struct", "union"):
        return {name: plain(value[name], inner) for name, inner in of.children}
    if kind in ("list", "array"):
        inner = dict(of.children)["child"]
        return [plain(element, inner) for element in value]
    if kind == "blob":
        return bytes(value).hex()
    if kind in ("float", "double"):
        if math.isnan(value):
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return single(value) if kind == "float" else value
    return value


def main():
    connection = duckdb.connect()
    for directory in sorted(glob.glob(os.path.join(glob.escape(sys.argv[1]), "event=*"))):
        # A file that is being written has another name.
        if not glob.glob(f"{glob.escape(directory)}/**/*.parquet", recursive=True):
            continue
        rows = connection.sql(
            f"""SELECT * FROM read_parquet('{directory}/**/*.parquet', hive_partitioning = true,
                hive_types_autocast = false, union_by_name = true, filename = true,
                file_row_number = true) ORDER BY filename, file_row_number"""
        )
        names, types = rows.columns, rows.types
        for row in rows.fetchall():
            columns = zip(names, row, types)
            print(json.dumps({name: plain(value, of) for name, value, of in columns}))


main()
