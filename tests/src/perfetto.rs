//! Perfetto itself: its page and its trace processor, in WebAssembly, from the Python package that
//! contains them, in place of those of ui.perfetto.dev.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::browser::Browser;
use crate::certificates::Certificates;
use crate::lab::Lab;
use crate::process::Process;
use crate::{peers, wait_for};

/// The host whose page it is.
pub const HOST: &str = "ui.perfetto.dev";

/// Serves a directory by HTTPS on a free port of this host, and prints the port.
const SERVER: &str = "
import functools, http.server, ssl, sys
http.server.SimpleHTTPRequestHandler.log_message = lambda *arguments: None
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// Selects what Perfetto did not understand of a trace.
pub const ERRORS: &str =
    "select name as row from stats where value > 0 and severity in ('error', 'data_loss')";

/// Opens in Perfetto what `write` writes to the path that it is given. Perfetto must find no fault.
#[must_use]
pub fn open_output(lab: &Lab, name: &str, write: impl FnOnce(&str)) -> (Browser, Process) {
    let directory = lab.directory("page");
    for entry in fs::read_dir(peers::PERFETTO.path()).unwrap() {
        let entry = entry.unwrap();
        symlink(entry.path(), directory.join(entry.file_name())).unwrap();
    }
    write(directory.join(name).to_str().unwrap());
    let certificates = Certificates::create(lab, "certificates");
    certificates.issue_server(&[HOST]);
    let (server, address) = serve(lab, &directory, &certificates);
    let browser = Browser::start_with_host(lab, Some((HOST, address)));
    browser.open(&format!("https://{HOST}/#!/?url=https://{HOST}/{name}"));
    wait_until_open(&browser);
    assert_eq!(rows(&browser, ERRORS), [""; 0]);
    (browser, server)
}

/// Waits until the page has read its trace.
pub fn wait_until_open(browser: &Browser) {
    let is_open = "return !!(window.app && app.trace)";
    browser.wait_for("Perfetto has the trace", is_open);
}

/// The column `row` of an answer.
#[must_use]
pub fn rows(browser: &Browser, sql: &str) -> Vec<String> {
    let row = |row: Value| row["row"].as_str().unwrap().to_owned();
    query(browser, sql).into_iter().map(row).collect()
}

/// Serves a directory as the host of Perfetto.
#[must_use]
pub fn serve(lab: &Lab, directory: &Path, certificates: &Certificates) -> (Process, SocketAddr) {
    let mut command = lab.command(peers::program("python3"));
    command.args(["-c", SERVER]).arg(directory);
    command.args([
        certificates.file("server.pem"),
        certificates.file("server.key"),
    ]);
    let server = Process::start(&mut command);
    let port = wait_for("the port of the server", || {
        server.stdout().first()?.parse().ok()
    });
    (server, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Asks the parser of Perfetto. Numbers are texts in its answer: they have up to 64 bits.
#[must_use]
pub fn query(browser: &Browser, sql: &str) -> Vec<Value> {
    let sql = serde_json::to_string(sql).unwrap();
    let answer = browser.run_async(&format!(
        "const done = arguments[arguments.length - 1];
         app.trace.engine.query({sql}).then(result => {{
             const rows = [];
             for (const row = result.iter({{}}); row.valid(); row.next()) {{
                 const named = {{}};
                 for (const column of result.columns()) {{
                     const value = row.get(column);
                     named[column] = value === null ? null : String(value);
                 }}
                 rows.push(named);
             }}
             done(rows);
         }}, error => done(String(error)))"
    ));
    let rows = answer.as_array();
    rows.unwrap_or_else(|| panic!("{answer}")).clone()
}
