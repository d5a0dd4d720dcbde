"""`TraceProcessor` of the Python package perfetto, which downloads the program that it runs.

Here it is the one in the page of Perfetto, which a browser has opened with the trace: in WebAssembly,
but the same. `$PERFETTO_SESSION` is the URL of the browser's session of WebDriver.
"""

import json
import os
import urllib.request

SCRIPT = """
const [sql, done] = arguments;
const cell = value => typeof value === 'bigint' ? {integer: String(value)}
    : typeof value === 'number' ? {real: value} : value;
app.trace.engine.query(sql).then(result => {
    const [names, rows] = [result.columns(), []];
    for (const row = result.iter({}); row.valid(); row.next()) {
        rows.push(names.map(name => cell(row.get(name))));
    }
    done({names, rows});
}, error => done({error: String(error)}));
"""


def value(cell):
    if isinstance(cell, dict):
        return int(cell["integer"]) if "integer" in cell else float(cell["real"])
    return cell


class Row:
    pass


class Answer:
    def __init__(self, names, rows):
        self.column_names = names
        self.rows = rows

    def __iter__(self):
        for cells in self.rows:
            row = Row()
            for name, cell in zip(self.column_names, cells):
                setattr(row, name, value(cell))
            yield row


class TraceProcessor:
    def __init__(self, trace):
        assert trace == os.environ["PERFETTO_TRACE"], trace

    def query(self, sql):
        body = json.dumps({"script": SCRIPT, "args": [sql]}).encode()
        url = os.environ["PERFETTO_SESSION"] + "/execute/async"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            found = json.load(answer)["value"]
        if "error" in found:
            raise ValueError(found["error"])
        return Answer(found["names"], found["rows"])
