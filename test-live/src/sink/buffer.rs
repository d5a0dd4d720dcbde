//! The buffer of a sink's output: written in large parts, and when nothing more can be shown for
//! now.
//!
//! Not a [`std::io::BufWriter`]: sinks append to a vector, which cannot fail, and remove what an
//! event has begun to write if the event turns out to be malformed.

use std::io::{self, Write};

/// Number of bytes in a buffer from which it is written.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// An empty buffer with room for one write, and for the event that fills it.
pub(super) fn with_capacity() -> Vec<u8> {
    Vec::with_capacity(MAX_BUFFERED_BYTES + (MAX_BUFFERED_BYTES >> 2))
}

/// Writes the buffer if it has enough bytes.
#[inline]
pub(super) fn write_if_full(buffer: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    if buffer.len() >= MAX_BUFFERED_BYTES {
        write(buffer, out)?;
    }
    Ok(())
}

/// Appends `bytes` to the buffer. If they are many, the buffer and they are written instead.
pub(super) fn append_or_write(
    buffer: &mut Vec<u8>,
    bytes: &[u8],
    out: &mut impl Write,
) -> io::Result<()> {
    if bytes.len() < MAX_BUFFERED_BYTES {
        buffer.extend_from_slice(bytes);
        return write_if_full(buffer, out);
    }
    // The bytes are many: to copy them into the buffer would cost more than another write.
    write(buffer, out)?;
    out.write_all(bytes)
}

/// Writes the buffer, and flushes `out`.
pub(super) fn flush(buffer: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    write(buffer, out)?;
    out.flush()
}

/// Writes the buffer. It is empty afterwards even if it could not be written: a sink that is
/// dropped tries once more.
fn write(buffer: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    let written = out.write_all(buffer);
    buffer.clear();
    written
}
