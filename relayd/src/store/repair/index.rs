//! Reads an index file that may be damaged: how many of its entries are valid, and what follows
//! them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ctf::index::{Beacon, Entry, IndexFormat, IndexHeader, MAX_ENTRY_BYTES};
use wire::Field;

/// Entries that are read at once.
const ENTRIES_READ: usize = 256;

/// The valid entries at the beginning of an index file.
#[derive(Debug)]
pub(in crate::store) struct ValidEntries {
    /// Number of valid entries.
    pub count: u64,
    /// End of the packet of the last valid entry in the tracefile, in bytes.
    pub end: u64,
    /// The last of them.
    pub last: Option<Entry>,
    /// The last valid entry. None: there is none.
    pub backwards: Option<u64>,
    /// The bytes that follow the valid entries.
    pub follows: Follows,
}

/// The kind of bytes that follow the valid entries of an index file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) enum Follows {
    /// The end of the file, a beacon or a partial entry.
    End,
    /// An entry whose packet begins in the tracefile and ends past its end.
    PastData,
    /// Zeros, as some file systems leave them after power loss.
    Zeros,
    /// An entry that cannot be right, and the reason.
    Invalid(String),
}

/// The format of an index file. None: the file ends within its header, or its header is zeros.
///
/// # Errors
/// If the header is not that of any version.
pub(in crate::store) fn format_of(index: &File) -> io::Result<Option<IndexFormat>> {
    let len = index.metadata()?.len();
    if len < IndexHeader::SIZE as u64 {
        return Ok(None);
    }
    let mut header = [0; IndexHeader::SIZE];
    index.read_exact_at(&mut header, 0)?;
    // Some file systems leave zeros after a power loss.
    if header == [0; IndexHeader::SIZE] {
        return Ok(None);
    }
    let is_it = |format: &IndexFormat| format.header_bytes() == header;
    let formats = [IndexFormat::V1_0, IndexFormat::V1_1];
    let invalid = || invalid_data("the index file has an unknown header".to_owned());
    formats
        .into_iter()
        .find(is_it)
        .map(Some)
        .ok_or_else(invalid)
}

/// Whether the index file ends in a beacon after a header. Only this relay writes beacons, and
/// removes them when it closes the file.
pub(super) fn ends_in_beacon(index: &File) -> io::Result<bool> {
    let len = index.metadata()?.len();
    let tail = len.checked_sub(Beacon::SIZE as u64);
    let Some(tail) = tail.filter(|tail| *tail >= IndexHeader::SIZE as u64) else {
        return Ok(false);
    };
    let mut bytes = [0; Beacon::SIZE];
    index.read_exact_at(&mut bytes, tail)?;
    Ok(Beacon::at_front(&bytes).is_some())
}

/// Reads the entry with this number, counted from 0.
pub(in crate::store) fn read_entry(
    index: &File,
    format: IndexFormat,
    number: u64,
) -> io::Result<Entry> {
    let mut bytes = [0; MAX_ENTRY_BYTES];
    let (bytes, _) = bytes.split_at_mut(format.entry_len());
    index.read_exact_at(bytes, format.position(number))?;
    format.decode(bytes).map_err(io::Error::other)
}

/// Whether the last field of an entry is 0, as it is if only the beginning of the entry has reached
/// the disk.
pub(super) fn ends_in_zeros(entry: &Entry, format: IndexFormat) -> bool {
    let mut bytes = [0; MAX_ENTRY_BYTES];
    let bytes = format.encode(entry, &mut bytes);
    bytes.ends_with(&[0; 8])
}

/// Reads the entries whose packets lie, one after the other, within the first `data_len` bytes of
/// the tracefile.
pub(in crate::store) fn valid_entries(
    index: &File,
    format: IndexFormat,
    data_len: u64,
) -> io::Result<ValidEntries> {
    let mut len = index.metadata()?.len();
    if ends_in_beacon(index)? {
        len -= Beacon::SIZE as u64;
    }
    let total = len.saturating_sub(format.position(0)) / format.entry_len() as u64;
    let mut valid = ValidEntries {
        count: 0,
        end: 0,
        last: None,
        backwards: None,
        follows: Follows::End,
    };
    let mut buffer = vec![0; ENTRIES_READ * format.entry_len()];
    while valid.count < total {
        let left = usize::try_from(total - valid.count).unwrap_or(usize::MAX);
        let (bytes, _) = buffer.split_at_mut(left.min(ENTRIES_READ) * format.entry_len());
        index.read_exact_at(bytes, format.position(valid.count))?;
        for bytes in bytes.chunks_exact(format.entry_len()) {
            let entry = format.decode(bytes).map_err(io::Error::other)?;
            match check_entry(&entry, valid.end, data_len) {
                None => {}
                Some(_) if bytes.iter().all(|byte| *byte == 0) => {
                    valid.follows = Follows::Zeros;
                    return Ok(valid);
                }
                // A beacon that a newer entry has partly overwritten, or that precedes lost
                // entries.
                Some(_) if Beacon::at_front(bytes).is_some() => return Ok(valid),
                Some(Follows::Invalid(reason)) => {
                    let reason = format!("entry {} of the index file: {reason}", valid.count);
                    valid.follows = Follows::Invalid(reason);
                    return Ok(valid);
                }
                Some(follows) => {
                    valid.follows = follows;
                    return Ok(valid);
                }
            }
            if is_backwards(&entry) {
                valid.backwards.get_or_insert(valid.count);
            }
            valid.end = end_of(&entry);
            valid.count += 1;
            valid.last = Some(entry);
        }
    }
    Ok(valid)
}

/// Whether the packet ends before it begins.
pub(super) fn is_backwards(entry: &Entry) -> bool {
    entry.packet.end < entry.packet.begin
}

/// End of the packet in its tracefile, in bytes.
pub(in crate::store) fn end_of(entry: &Entry) -> u64 {
    let size = entry.packet.packet_size.to_bytes().unwrap_or_default();
    entry.offset.0.saturating_add(size.0)
}

/// The reason why an entry is not valid. None: it is. Times say nothing: the clock of a traced host
/// may be set back, and one of 32 bits begins again at 0.
fn check_entry(entry: &Entry, last_end: u64, data_len: u64) -> Option<Follows> {
    let packet = &entry.packet;
    let invalid = |reason: &str| Some(Follows::Invalid(reason.to_owned()));
    if packet.packet_size.to_bytes().is_none_or(|size| size.0 == 0) {
        return invalid("the packet size is not a number of bytes");
    }
    if packet.content_size > packet.packet_size {
        return invalid("the content is larger than the packet");
    }
    if entry.offset.0 < last_end {
        return invalid("the packet begins in the packet before it");
    }
    if entry.offset.0 > data_len {
        return invalid("the packet begins past the end of the tracefile");
    }
    (end_of(entry) > data_len).then_some(Follows::PastData)
}

pub(super) fn invalid_data(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
