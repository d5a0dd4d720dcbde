//! A pipe through which the bytes of packets go from a socket to a tracefile without being copied
//! to the memory of the relay.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::disk;

/// A pipe of which this process has both ends. Bytes leave it in the order in which they came.
#[derive(Debug)]
pub struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Number of bytes in it.
    len: usize,
}

impl Pipe {
    /// An empty pipe that takes up to `capacity` bytes, or fewer if the system allows no more.
    ///
    /// # Errors
    /// If it cannot be created: there are no descriptors left, for example.
    pub fn new(capacity: usize) -> io::Result<Self> {
        // Non-blocking: this thread is also the one that empties the pipe.
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // An error means that the user has many pipes. A small one makes more calls, and no
        // difference else.
        let _ = fcntl_setpipe_size(&writer, capacity);
        Ok(Self {
            reader,
            writer,
            len: 0,
        })
    }

    /// Number of bytes in the pipe.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is in the pipe.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves up to `len` bytes from a non-blocking source to the pipe. Returns how many; 0 means
    /// that the source has ended.
    ///
    /// # Errors
    /// `WouldBlock` if the source has nothing or the pipe is full; `InvalidInput` if the source has
    /// no splice(2); else the source has failed.
    pub fn fill(&mut self, source: impl AsFd, len: usize) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK;
        let moved = splice(source, None, &self.writer, None, len, flags)?;
        self.len += moved;
        Ok(moved)
    }

    /// Reads from the pipe until `into` is full or the pipe is empty. Returns the number of bytes.
    ///
    /// # Errors
    /// If the system cannot read it.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while self.len > 0
            && let Some(free) = into.get_mut(read..).filter(|free| !free.is_empty())
        {
            let more = retry_on_intr(|| rustix::io::read(&self.reader, &mut *free))?;
            // Cannot happen while `len` is right, because the write end is open.
            if more == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.len -= more;
            read += more;
        }
        Ok(read)
    }

    /// Moves up to `len` bytes from the pipe to a position of a file. Returns how many: fewer after
    /// an error, and none if the file system has no splice(2). The others stay in the pipe.
    pub(super) fn write_at(&mut self, file: &File, len: usize, at: u64) -> usize {
        let len = len.min(self.len);
        let mut moved = 0;
        while moved < len {
            match disk::splice_at(&self.reader, file, len - moved, at + moved as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => moved += more,
            }
        }
        self.len -= moved;
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        (peer, socket)
    }

    #[test]
    fn bytes_go_from_a_socket_to_a_position_of_a_file_or_to_memory() {
        let (mut peer, socket) = connection();
        let mut pipe = Pipe::new(64 << 10).unwrap();
        let nothing = pipe.fill(&socket, 10).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        peer.write_all(b"header, payload, next").unwrap();
        drop(peer);
        assert_eq!(pipe.fill(&socket, 16).unwrap(), 16);
        assert_eq!(pipe.fill(&socket, 100).unwrap(), 5);
        assert_eq!(pipe.fill(&socket, 100).unwrap(), 0);
        assert_eq!(pipe.len(), 21);
        let mut header = [0; 8];
        assert_eq!(pipe.read(&mut header).unwrap(), 8);
        assert_eq!(&header, b"header, ");
        let file = tempfile::tempfile().unwrap();
        assert_eq!(pipe.write_at(&file, 7, 3), 7);
        assert_eq!(pipe.len(), 6);
        let mut rest = [0; 100];
        assert_eq!(pipe.read(&mut rest).unwrap(), 6);
        assert_eq!(&rest[..6], b", next");
        assert!(pipe.is_empty());
        assert_eq!(pipe.read(&mut rest).unwrap(), 0);
        let written = super::super::reopenable_file::contents(&file);
        assert_eq!(written, b"\0\0\0payload");
    }

    #[test]
    fn bytes_that_cannot_be_written_stay_in_the_pipe() {
        let (mut peer, socket) = connection();
        let mut pipe = Pipe::new(64 << 10).unwrap();
        peer.write_all(b"some bytes").unwrap();
        pipe.fill(&socket, 10).unwrap();
        let read_only = File::open("/dev/null").unwrap();
        assert_eq!(pipe.write_at(&read_only, 10, 0), 0);
        let mut bytes = [0; 10];
        pipe.read(&mut bytes).unwrap();
        assert_eq!(&bytes, b"some bytes");
    }
}
