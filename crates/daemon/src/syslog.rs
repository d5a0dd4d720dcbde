//! The log of a daemon at the syslog daemon, by the datagrams of RFC 3164 without a time. journald
//! receives them too.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Where syslog daemons and journald listen.
const SOCKET: &str = "/dev/log";

/// The facility of daemons (`LOG_DAEMON`), in the position that it has in a priority.
const FACILITY: u8 = 3 << 3;

/// Sends log records to the syslog daemon. A record for which the daemon has no space is lost: the
/// program does not wait.
#[derive(Debug)]
pub(crate) struct Syslog {
    program: &'static str,
    path: PathBuf,
    socket: UnixDatagram,
}

/// Sends what is written at once as one record.
#[derive(Debug)]
pub(crate) struct RecordWriter<'a> {
    syslog: &'a Syslog,
    priority: u8,
}

impl Syslog {
    /// Returns none if no syslog daemon listens.
    pub(crate) fn open(program: &'static str) -> Option<Self> {
        Self::open_at(program, Path::new(SOCKET)).ok()
    }

    fn open_at(program: &'static str, path: &Path) -> io::Result<Self> {
        // Only to see whether it listens: the records are sent by name, which works after it has
        // been restarted too.
        UnixDatagram::unbound()?.connect(path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            program,
            path: path.to_owned(),
            socket,
        })
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = RecordWriter<'a>;

    fn make_writer(&'a self) -> RecordWriter<'a> {
        let priority = FACILITY | severity(Level::INFO);
        RecordWriter {
            syslog: self,
            priority,
        }
    }

    fn make_writer_for(&'a self, record: &Metadata<'_>) -> RecordWriter<'a> {
        let priority = FACILITY | severity(*record.level());
        RecordWriter {
            syslog: self,
            priority,
        }
    }
}

/// Returns the severity of a level: `LOG_ERR`, `LOG_WARNING`, `LOG_INFO`, `LOG_DEBUG`.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl Write for RecordWriter<'_> {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let Syslog {
            program,
            path,
            socket,
        } = self.syslog;
        let mut datagram =
            format!("<{}>{program}[{}]: ", self.priority, std::process::id()).into_bytes();
        // The datagram ends the record, and some daemons show a line break in it as `#012`.
        datagram.extend_from_slice(record.trim_ascii());
        // There is no other log to which this failure could go.
        let _ = socket.send_to(&datagram, path);
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_sent_with_their_priority_also_after_the_syslog_daemon_was_restarted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert!(Syslog::open_at("test", &path).is_err(), "no daemon");
        let mut daemon = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog::open_at("test", &path).unwrap();
        for round in 0..2 {
            let line = format!("INFO listening {round}\n");
            assert_eq!(
                syslog.make_writer().write(line.as_bytes()).unwrap(),
                line.len()
            );
            let mut received = [0; 100];
            let len = daemon.recv(&mut received).unwrap();
            let want = format!("<30>test[{}]: INFO listening {round}", std::process::id());
            assert_eq!(str::from_utf8(&received[..len]).unwrap(), want);
            drop(daemon);
            std::fs::remove_file(&path).unwrap();
            // Nothing listens: the record is lost, and the program goes on.
            syslog.make_writer().write_all(b"lost").unwrap();
            daemon = UnixDatagram::bind(&path).unwrap();
        }
        assert_eq!(FACILITY | severity(Level::WARN), 28);
    }
}
