//! Large packets: their bytes go from the socket through a pipe to the tracefile, and are copied
//! once instead of twice.
//!
//! All that has arrived is moved to the pipe, several packets perhaps. Headers are read from it,
//! and the bytes of each large packet that is the next of its stream are moved to the tracefile.
//! Whatever else is found in the pipe is read into the buffer, and handled as if it had been
//! received there: small packets, early ones, and bytes for which there is no space on the disk.

use std::cell::Cell;
use std::io;

use relay_proto::DataHeader;
use tracing::debug;
use wire::Field;

use super::{DataTask, EventSocket, ReadOutcome, SocketState};
use crate::limits::{DATA_READ_BYTES, MIN_SPLICED_PACKET};
use crate::net::error::ConnectionError;
use crate::store::pipe::Pipe;

thread_local! {
    /// Pipe of all data connections of a thread. Nothing is left in it between reads.
    static PIPE: Cell<Option<Pipe>> = const { Cell::new(None) };
}

impl DataTask {
    /// The pipe, if the next packet is probably large, and other data connections of the worker are
    /// active: a producer that is alone is faster without on some processors.
    pub(super) fn take_pipe(&mut self) -> Option<Pipe> {
        let is_alone = self.active_connections == 1;
        if !self.can_splice || is_alone || self.last_packet < MIN_SPLICED_PACKET {
            return None;
        }
        let pipe = PIPE.take().map_or_else(|| Pipe::new(DATA_READ_BYTES), Ok);
        pipe.inspect_err(|error| self.stop_splicing(error)).ok()
    }

    /// Moves what has arrived to the pipe, and hands it on.
    pub(super) fn read_spliced(&mut self, mut pipe: Pipe) -> ReadOutcome {
        let (read, then) = self.receive_with(DATA_READ_BYTES, |socket, read| {
            pipe.fill(socket.descriptor()?, DATA_READ_BYTES - read)
        });
        let then = match then {
            Some(SocketState::Ended(Err(ConnectionError::Lost(error))))
                if error.kind() == io::ErrorKind::InvalidInput =>
            {
                self.stop_splicing(&error);
                SocketState::HasMore
            }
            None | Some(SocketState::Drained) if read > 0 => state_of(&self.socket),
            then => then.unwrap_or(SocketState::HasMore),
        };
        let emptied = self.empty_pipe(&mut pipe);
        self.write_ready_entries();
        match emptied {
            // Only an empty pipe may serve another connection.
            Ok(()) if pipe.is_empty() => PIPE.set(Some(pipe)),
            // The connection has ended.
            Ok(()) => {}
            Err(error) => self.end(Err(error.into())),
        }
        self.finish_read(then)
    }

    /// Hands on the bytes in the pipe, until it is empty or the connection has ended.
    fn empty_pipe(&mut self, pipe: &mut Pipe) -> io::Result<()> {
        while !pipe.is_empty() && self.connection.is_some() {
            if self.pause.is_some() {
                let kept = self.undecoded.len();
                self.undecoded.resize(kept + pipe.len(), 0);
                pipe.read(self.undecoded.get_mut(kept..).unwrap_or_default())?;
            } else if !self.can_splice || self.last_packet < MIN_SPLICED_PACKET {
                self.read_rest(pipe)?;
            } else if self.decoder.in_packet() {
                self.splice_payload(pipe);
            } else {
                self.read_header(pipe)?;
            }
        }
        Ok(())
    }

    /// Moves bytes of a packet from the pipe to its tracefile. If that is impossible, no more
    /// packets are spliced.
    fn splice_payload(&mut self, pipe: &mut Pipe) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let left = self.decoder.left();
        let moved = connection.splice_payload(pipe, left as usize);
        self.can_splice = moved > 0;
        let moved = u32::try_from(moved).unwrap_or(left);
        if let Some(end) = self.decoder.skip(moved) {
            let handled = connection.handle_event(end);
            self.pause_or_end(handled);
        }
    }

    /// Reads a header from the pipe, or the part of it that has arrived.
    fn read_header(&mut self, pipe: &mut Pipe) -> io::Result<()> {
        let mut header = std::mem::take(&mut self.undecoded);
        let kept = header.len();
        header.resize(DataHeader::SIZE, 0);
        let read = pipe.read(header.get_mut(kept..).unwrap_or_default())?;
        header.truncate(kept + read);
        let left = self.decode_events(&header);
        header.truncate(left);
        self.undecoded = header;
        Ok(())
    }

    /// Reads all that is in the pipe, and decodes it.
    fn read_rest(&mut self, pipe: &mut Pipe) -> io::Result<()> {
        let (mut buffer, kept) = self.take_buffer();
        let read = pipe.read(buffer.get_mut(kept..).unwrap_or_default())?;
        self.decode_buffer(buffer, kept + read);
        Ok(())
    }

    fn stop_splicing(&mut self, why: &io::Error) {
        debug!(peer = %self.peer, %why, "packets are copied: they cannot be spliced");
        self.can_splice = false;
    }
}

/// Whether there is more to read from the socket. To be asked after bytes were moved from it: that
/// the pipe takes no more need not mean that the socket is empty, since a pipe has room for a
/// number of pieces, of whatever size.
fn state_of(socket: &EventSocket) -> SocketState {
    match socket.is_empty() {
        Ok(true) => SocketState::Drained,
        Ok(false) => SocketState::HasMore,
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use tokio::net::TcpStream;

    use super::*;

    /// A socket, and its peer, which sends at once.
    fn connection() -> (std::net::TcpStream, EventSocket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nodelay(true).unwrap();
        let socket = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        let socket = TcpStream::from_std(socket).unwrap();
        (peer, EventSocket::new(socket, None))
    }

    #[tokio::test]
    async fn a_full_pipe_is_not_taken_for_an_empty_socket() {
        let (mut peer, socket) = connection();
        let (mut other, _socket) = connection();
        for _ in 0..3 {
            peer.write_all(b"piece").unwrap();
            // Else the kernel would make one piece of all.
            other.write_all(b"other").unwrap();
        }
        // Has room for one piece.
        let mut pipe = Pipe::new(1).unwrap();
        for state in ["more", "more", "drained"] {
            assert_eq!(pipe.fill(socket.descriptor().unwrap(), 100).unwrap(), 5);
            let full = pipe.fill(socket.descriptor().unwrap(), 100).unwrap_err();
            assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
            assert_eq!(state_of(&socket).is_drained(), state == "drained");
            assert_eq!(pipe.read(&mut [0; 100]).unwrap(), 5);
        }
    }
}
