//! Finds the process that has a port of this host.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Ports of listening sockets.
    Tcp,
    /// Ports of sockets that are bound and not connected.
    Udp,
}

/// A process that has a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Name of the file that the program is in.
    pub name: String,
    /// Process id of the listener.
    pub pid: u32,
}

impl Protocol {
    /// Names of the tables in `/proc/PID/net`, and the state of sockets that have a port for
    /// themselves: see proc_net_tcp.rst of the kernel's documentation.
    fn tables(self) -> ([&'static str; 2], &'static str) {
        match self {
            Self::Tcp => (["tcp", "tcp6"], "0A"),
            Self::Udp => (["udp", "udp6"], "07"),
        }
    }
}

/// Returns the process that has a port for itself at an address: at this one or at all, or at any
/// if the address is that of all. None: there is none, or this user may not see it.
#[must_use]
pub fn find_listener(protocol: Protocol, address: SocketAddr) -> Option<Listener> {
    let (tables, state) = protocol.tables();
    // Not /proc/net, which a service with ProcSubset=pid does not have.
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(Path::new("/proc/self/net").join(table)).ok())
        .flat_map(|table| sockets_at(&table, state, address))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let owners = processes
        // Without a listening socket no process can match, and a host may have thousands of them.
        .filter(|process| !sockets.is_empty() && has_socket(&process.path(), &sockets))
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let name = program_name(&process.path())?;
            Some(Listener { name, pid })
        });
    // A service manager that has passed a socket on still has it itself.
    owners.max_by_key(|owner| owner.pid != 1)
}

/// Returns the name of the file that a process runs, given its directory in `/proc`. None: this
/// user may not see it.
#[must_use]
pub fn program_name(process: &Path) -> Option<String> {
    let program = fs::read_link(process.join("exe")).ok()?;
    let name = program.file_name()?.to_string_lossy().into_owned();
    // Said by the kernel when a new version has replaced the file.
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

/// Says in the error of an address that is in use which process uses it. Other errors stay as they
/// are.
#[must_use]
pub fn name_listener(error: io::Error, protocol: Protocol, address: SocketAddr) -> io::Error {
    if error.kind() != ErrorKind::AddrInUse {
        return error;
    }
    let by = match find_listener(protocol, address) {
        Some(Listener { name, pid }) => format!("{name} (process {pid})"),
        None => "another process".to_owned(),
    };
    io::Error::new(
        ErrorKind::AddrInUse,
        format!("Address already in use by {by}"),
    )
}

/// Returns the inodes of the sockets that have a port at an address, as links in `/proc/PID/fd`
/// name them.
fn sockets_at(table: &str, of_state: &str, address: SocketAddr) -> Vec<String> {
    let found = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        let inode = fields.nth(5)?;
        let (ip, port) = local.split_once(':')?;
        let is_port = u16::from_str_radix(port, 16) == Ok(address.port());
        let is_found = state == of_state && is_port && overlap(parse_ip(ip)?, address.ip());
        is_found.then(|| format!("socket:[{inode}]"))
    });
    found.collect()
}

/// Whether two sockets with these addresses could not have one port.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    one == other || one.is_unspecified() || other.is_unspecified()
}

/// Parses an address of `/proc/net`: words of 32 bits in hexadecimal, each with its bytes in memory
/// in the order of the network.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at * 8..at * 8 + 8)?;
        let number = u32::from_str_radix(digits, 16).ok()?;
        Some(u32::from_be(number).to_be_bytes())
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let bytes = [word(0)?, word(1)?, word(2)?, word(3)?];
    let bytes: [u8; 16] = bytes.concat().try_into().ok()?;
    Some(Ipv6Addr::from(bytes).into())
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
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn the_process_that_listens_is_found_until_it_closes_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let found = find_listener(Protocol::Tcp, address).unwrap();
        assert_eq!(found.pid, std::process::id());
        let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        assert_eq!(find_listener(Protocol::Tcp, all), Some(found.clone()));
        let other = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), address.port());
        assert_eq!(find_listener(Protocol::Tcp, other), None);
        let in_use = TcpListener::bind(address).unwrap_err();
        let named = name_listener(in_use, Protocol::Tcp, address).to_string();
        assert!(
            named.ends_with(&format!("(process {})", found.pid)),
            "{named}"
        );
        drop(listener);
        assert_eq!(find_listener(Protocol::Tcp, address), None);
        let socket = UdpSocket::bind("[::1]:0").unwrap();
        let address = socket.local_addr().unwrap();
        assert_eq!(find_listener(Protocol::Udp, address), Some(found));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_listening_sockets_of_the_port_and_address_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:14E0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100\n\
             1: 0100007F:14E0 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0 100\n\
             2: 0100007F:14DE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 43 1 0 100\n\
             3: 0200007F:14E0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 44 1 0 100\n\
             4: 0000000000000000FFFF00000100007F:14E0 0:0000 0A 00000000:00000000 00:00000000 00000000     0        0 45 1 0 100\n\
             5: 00000000000000000000000001000000:14E0 0:0000 0A 00000000:00000000 00:00000000 00000000     0        0 46 1 0 100\n\
             6: 0000007:14E0 0:0000 0A 00000000:00000000 00:00000000 00000000     0        0 47 1 0 100\n\
             a short line\n";
        let found = |address: &str| sockets_at(table, "0A", address.parse().unwrap());
        assert_eq!(found("127.0.0.1:5344"), ["socket:[41]", "socket:[45]"]);
        assert_eq!(found("[::1]:5344"), ["socket:[46]"]);
        assert_eq!(found("0.0.0.0:5344").len(), 4);
        assert_eq!(found("127.0.0.3:5344").len(), 0);
    }
}
