//! Finds the process that listens on a TCP port of this host.

use std::fs;
use std::path::Path;

/// The state LISTEN in `/proc/PID/net/tcp`: see proc_net_tcp.rst of the kernel's documentation.
const LISTEN: &str = "0A";

/// A process that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Name of the file that the program is in.
    pub name: String,
    /// Process id of the listener.
    pub pid: u32,
}

/// Returns the process that listens on a TCP port. None: there is none, or this user may not see
/// it.
#[must_use]
pub fn find_listener(port: u16) -> Option<Listener> {
    // Not /proc/net, which a service with ProcSubset=pid does not have.
    let sockets: Vec<String> = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| listening_sockets(&table, port))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes
        // Without a listening socket no process can match, and a host may have thousands of them.
        .filter(|process| !sockets.is_empty() && has_socket(&process.path(), &sockets))
        .find_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let program = fs::read_link(process.path().join("exe")).ok()?;
            let name = program.file_name()?.to_string_lossy().into_owned();
            Some(Listener { name, pid })
        })
}

/// Returns the inodes of the sockets that listen on a port, as links in `/proc/PID/fd` name them.
fn listening_sockets(table: &str, port: u16) -> Vec<String> {
    let port = format!(":{port:04X}");
    let listening = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        let inode = fields.nth(5)?;
        (local.ends_with(&port) && state == LISTEN).then(|| format!("socket:[{inode}]"))
    });
    listening.collect()
}

fn has_socket(process: &Path, sockets: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path());
        target.is_ok_and(|target| sockets.iter().any(|socket| target == Path::new(socket)))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_is_found_until_it_closes_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = find_listener(port).unwrap();
        assert_eq!(found.pid, std::process::id());
        drop(listener);
        assert_eq!(find_listener(port), None);
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:14E0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100\n\
             1: 0100007F:14E0 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0 100\n\
             2: 0100007F:14DE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 43 1 0 100\n\
             a short line\n";
        assert_eq!(listening_sockets(table, 5344), ["socket:[41]"]);
    }
}
