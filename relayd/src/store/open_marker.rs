//! Markers of trace directories that a relay is writing. A marker is a file that is created before
//! any other file of its directory and removed when the last stream has left the chunk. After a
//! crash it shows the next relay that a relay of this kind wrote the directory, also if power loss
//! has left no beacon in any index file. Readers ignore it, because its name begins with a dot.
//!
//! The name contains that of the chunk, so that an interrupted rotation can be completed. It is in
//! the name and not in the file because a directory entry is never torn. The file contains the id
//! that the kernel had since its start: while it still has that id, there was no power loss, and
//! everything that the relay has written is in the files.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

const PREFIX: &str = ".relayd-open-";

/// Name of the marker in directories of a chunk that began at this date. None: the producer knows
/// no chunks, and the marker is of this session only.
pub(super) fn name(began: &str, chunk: Option<u64>) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    match chunk {
        Some(chunk) => format!("{PREFIX}{began}-{chunk}"),
        None => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            format!("{PREFIX}{}-{number}", std::process::id())
        }
    }
}

/// Whether a marker was written since the kernel with this id was started.
pub(super) fn is_of_boot(marker: &File, boot: &str) -> bool {
    // One byte more, which a longer file would have.
    let mut written = Vec::new();
    let read = marker.take(boot.len() as u64 + 1).read_to_end(&mut written);
    read.is_ok() && written == boot.as_bytes()
}

/// Whether this is the name of a marker.
pub(super) fn is_marker(name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes())
}

/// The chunk that a marker names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MarkedChunk {
    /// Time at which the chunk began, as in the name of its directory: `20261120T213831+0000`.
    pub began: String,
    /// Number of the chunk.
    pub id: u64,
}

impl MarkedChunk {
    /// The chunk in the name of a marker. None: it names none.
    pub(super) fn of(marker: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(marker).ok()?.strip_prefix(PREFIX)?;
        // From the right, because a date west of Greenwich has a dash of its own.
        let (began, id) = name.rsplit_once('-')?;
        let is_date = began.len() == "20261120T213831+0000".len()
            && began.bytes().enumerate().all(|(at, byte)| match at {
                8 => byte == b'T',
                15 => matches!(byte, b'+' | b'-'),
                _ => byte.is_ascii_digit(),
            });
        // The name becomes that of a directory: nothing but a date and a number may be in it.
        let id = id.parse().ok().filter(|_| is_date)?;
        Some(Self {
            began: began.to_owned(),
            id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_marker_gives_its_chunk_back_and_nothing_else_does() {
        let marker = name("20261120T213831+0000", Some(7));
        let chunk = MarkedChunk::of(marker.as_bytes()).unwrap();
        assert_eq!(
            (chunk.began.as_str(), chunk.id),
            ("20261120T213831+0000", 7)
        );
        assert!(is_marker(marker.as_bytes()));
        let plain = name("", None);
        assert!(is_marker(plain.as_bytes()));
        let hostile = [
            plain.as_str(),
            ".relayd-open-",
            ".relayd-open-20261120T213831+0000-",
            ".relayd-open-20261120T213831+0000-x",
            ".relayd-open-2026112/T213831+0000-1",
            "relayd-open-20261120T213831+0000-1",
        ];
        for name in hostile {
            assert_eq!(MarkedChunk::of(name.as_bytes()), None, "{name}");
        }
    }
}
