//! The health socket: answers queries for the health of the relay (`lttng-relayd`'s health check).
//! A thread of its own answers, so that queries are answered while other threads hang.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tracing::{debug, warn};

use super::ServiceError;
use super::run_folder::{Group, change_group};
use crate::health::Health;
use crate::limits::{HEALTH_RETRY_INTERVAL, HEALTH_TIMEOUT};

/// Permissions of the socket: owner and group may query it.
const MODE: u32 = 0o660;

/// The only query: command 0, a 32-bit number.
const CHECK: [u8; 4] = [0; 4];

/// The socket. Dropping it removes the file; the thread keeps running.
#[derive(Debug)]
pub(super) struct HealthSocket(PathBuf);

impl HealthSocket {
    /// Listens on the socket. The stale socket of a relay that was killed is replaced.
    pub(super) fn open(
        path: &Path,
        group: Option<Group>,
        health: Arc<Health>,
    ) -> Result<Self, ServiceError> {
        let failed = || ServiceError::on("open the health socket", path);
        // Nothing accepts connections on the socket of a relay that was killed. Other files are not
        // removed.
        let is_socket = |about: std::fs::Metadata| about.file_type().is_socket();
        if std::fs::symlink_metadata(path).is_ok_and(is_socket)
            && UnixStream::connect(path).is_err()
        {
            std::fs::remove_file(path).map_err(failed())?;
        }
        let listener = UnixListener::bind(path).map_err(failed())?;
        let socket = Self(path.to_owned());
        // bind(2) has applied the umask.
        std::fs::set_permissions(path, Permissions::from_mode(MODE)).map_err(failed())?;
        change_group(path, group)?;
        thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || answer_all(&listener, &health))
            .map_err(failed())?;
        Ok(socket)
    }
}

impl Drop for HealthSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn answer_all(listener: &UnixListener, health: &Health) {
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                if let Err(error) = answer(client, health) {
                    debug!(%error, "cannot answer a health query");
                }
            }
            Err(error) => {
                warn!(%error, "cannot accept a health query");
                thread::sleep(HEALTH_RETRY_INTERVAL);
            }
        }
    }
}

#[expect(
    clippy::host_endian_bytes,
    reason = "the protocol is local to one machine, and uses its byte order"
)]
fn answer(mut client: UnixStream, health: &Health) -> io::Result<()> {
    // A client that sends nothing blocks the next one.
    client.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    client.set_write_timeout(Some(HEALTH_TIMEOUT))?;
    let mut query = [0; CHECK.len()];
    client.read_exact(&mut query)?;
    if query != CHECK {
        return Err(io::Error::other("unknown query"));
    }
    client.write_all(&health.error_mask(Instant::now()).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_socket_answers_a_query_and_closes_on_anything_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("health");
        // A stale socket.
        drop(UnixListener::bind(&path).unwrap());
        let health = Arc::new(Health::new(Instant::now()));
        let socket = HealthSocket::open(&path, None, Arc::clone(&health)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let query = |question: &[u8]| {
            let mut asking = UnixStream::connect(&path).unwrap();
            asking.write_all(question).unwrap();
            asking.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            let _ = asking.read_to_end(&mut answer);
            answer
        };
        assert_eq!(query(&CHECK), [0; 8]);
        assert!(query(&[0, 0]).is_empty());
        assert!(query(&[1, 0, 0, 1]).is_empty());
        drop(health.producers.listening_guard());
        let answer = query(&CHECK);
        assert!(answer.len() == 8 && answer.contains(&0b101));
        assert!(HealthSocket::open(&path, None, health).is_err());
        drop(socket);
        assert!(!path.exists());
    }
}
