//! Reads the sessions that an earlier process has left in the spool. Only the session logs are read
//! now; the segments are read when the uplink takes their packets.

use std::io;

use record_log::{Damage, HEADER_BYTES, RECORD_HEAD_BYTES};
use tracing::{info, warn};

use super::damage::classify;
use super::disk::{Disk, DiskEntry};
use super::read::read_body;
use super::record::{LogRecord, SESSION_LOG, StateStep};
use super::session::{
    LOG_NAME, QUARANTINE, Segment, StateEntry, StatePlace, StoredSession, directory_name,
    segment_number,
};

/// The name of the file that a process locks while it uses the spool.
pub(super) const LOCK_NAME: &str = "lock";

/// What was found in the spool's directory.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) sessions: Vec<StoredSession>,
    /// Number of damaged files and directories that were set aside now.
    pub(super) quarantined: u64,
}

/// Reads all sessions, in the order in which they were created.
///
/// # Errors
/// If the directory of the spool cannot be listed. A session that cannot be read stays where it is.
pub(super) fn recover(disk: &mut impl Disk) -> io::Result<Recovered> {
    let mut recovered = Recovered::default();
    for entry in disk.list("")? {
        let name = entry.name;
        if name == LOCK_NAME {
            continue;
        }
        if name.starts_with(QUARANTINE) {
            warn!(%name, "damaged file of an earlier session: kept for inspection, remove it when done");
            continue;
        }
        if entry.length.is_some() || !is_directory_name(&name) {
            warn!(%name, "not a part of the spool: ignored");
            continue;
        }
        match recover_session(disk, &name) {
            Ok(Found::Session(session, quarantined)) => {
                recovered.quarantined += u64::from(quarantined);
                recovered.sessions.push(*session);
            }
            Ok(Found::Empty) => info!(directory = %name, "removed a session that had not begun"),
            Ok(Found::Damaged) => {
                recovered.quarantined += 1;
                let aside = format!("{QUARANTINE}{name}");
                match disk.rename(&name, &aside) {
                    Ok(()) => {
                        warn!(directory = %aside, "session damaged: its log has no beginning; kept for inspection")
                    }
                    Err(error) => {
                        warn!(directory = %name, "session damaged, cannot rename it: {error}")
                    }
                }
            }
            Err(error) => {
                warn!(directory = %name, "cannot read a session: {error}; it stays in the spool for the next start")
            }
        }
    }
    recovered
        .sessions
        .sort_by_key(|session| (session.identity.created, session.identity.id));
    Ok(recovered)
}

/// What the directory of a session has.
enum Found {
    /// A session, and whether a part of its log was set aside.
    Session(Box<StoredSession>, bool),
    /// No session: its first record has not been written.
    Empty,
    /// Something that no session has left.
    Damaged,
}

/// Whether a directory has the name of a session: UUID-ID.
fn is_directory_name(name: &str) -> bool {
    let Some((producer, id)) = name.rsplit_once('-') else {
        return false;
    };
    // Compared with its normal form: `007` or another spelling is no name that the spool has given.
    let has_id = id.parse().is_ok_and(|number: u64| number.to_string() == id);
    let producer =
        uuid::Uuid::try_parse(producer).is_ok_and(|uuid| uuid.hyphenated().to_string() == producer);
    has_id && producer
}

fn recover_session(disk: &mut impl Disk, directory: &str) -> io::Result<Found> {
    let entries = disk.list(directory)?;
    let log = entries.iter().find(|entry| entry.name == LOG_NAME);
    let segments: Vec<_> = entries.iter().filter_map(segment_of).collect();
    let length = log.and_then(|log| log.length).unwrap_or_default();
    let path = format!("{directory}/{LOG_NAME}");
    let mut log = LogReader {
        path: &path,
        length,
        offset: HEADER_BYTES as u64,
        damage: None,
    };
    let first = log.first(disk)?;
    let Some(LogRecord::Session(description, identity)) = first else {
        let is_torn = match log.damage {
            Some(_) if length > 0 => {
                classify(disk, &path, 0, length, Damage::Torn)? == Damage::Torn
            }
            _ => length == 0,
        };
        if !is_torn || !segments.is_empty() {
            return Ok(Found::Damaged);
        }
        for entry in entries {
            disk.unlink(&format!("{directory}/{}", entry.name))?;
        }
        disk.remove_directory(directory)?;
        return Ok(Found::Empty);
    };
    // A copy under another name would be sent as the same session as the original.
    if directory_name(&identity) != directory {
        return Ok(Found::Damaged);
    }
    let mut session = StoredSession::new(description, identity);
    while let Some((offset, record)) = log.next(disk)? {
        if !session.add_logged(record, offset, log.offset - offset) {
            (log.offset, log.damage) = (offset, Some(Damage::Corrupt));
            break;
        }
    }
    // Before the first write: records that follow damage would never be read.
    let is_quarantined = repair_log(disk, &log, directory)?;
    session.log.length = log.offset;
    session.bytes = log.offset;
    for (number, length) in segments {
        session.bytes += length;
        session.next_segment = session.next_segment.max(number + 1);
        let segment = Segment {
            length,
            is_unknown: true,
            ..Segment::default()
        };
        session.segments.insert(number, segment);
    }
    session.reader.next_seqs.clone_from(&session.acknowledged);
    // These positions come from the log.
    session.has_unrecorded = false;
    // Its frontend was in a process that is gone.
    session.is_ended = true;
    Ok(Found::Session(Box::new(session), is_quarantined))
}

fn segment_of(entry: &DiskEntry) -> Option<(u64, u64)> {
    Some((segment_number(&entry.name)?, entry.length?))
}

impl StoredSession {
    /// Takes over a record of the session log. Returns false if it does not fit to those before.
    fn add_logged(&mut self, record: LogRecord, offset: u64, length: u64) -> bool {
        match record {
            LogRecord::Session(..) => return false,
            LogRecord::Acknowledged(positions) => self.acknowledge(positions),
            LogRecord::Step(head, state) => {
                if head.after != self.last_state || head.step <= head.after {
                    return false;
                }
                self.last_state = head.step;
                self.next_step = head.step + 1;
                let place = match state {
                    // Short: not worth another reading.
                    StateStep::End { .. } | StateStep::CloseStream { .. } => {
                        StatePlace::Memory(state)
                    }
                    _ => StatePlace::Log { offset, length },
                };
                self.reader.states.push_back(StateEntry {
                    step: head.step,
                    place,
                });
            }
        }
        true
    }
}

/// Cuts damage off the end of a session log. Returns whether the end was set aside.
fn repair_log(disk: &mut impl Disk, log: &LogReader<'_>, directory: &str) -> io::Result<bool> {
    let Some(found) = log.damage else {
        return Ok(false);
    };
    let damage = classify(disk, log.path, log.offset, log.length, found)?;
    if damage == Damage::Torn {
        info!(
            log = log.path,
            bytes = log.length - log.offset,
            "incomplete record at the end cut off"
        );
    } else {
        // Copied and not renamed, because the records before the damage stay the log.
        let aside = format!("{QUARANTINE}{directory}-{LOG_NAME}");
        let mut at = log.offset;
        let mut buffer = vec![0; 1 << 20];
        while at < log.length {
            let part = usize::try_from(log.length - at)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let part = buffer.get_mut(..part).unwrap_or_default();
            disk.read_at(log.path, at, part)?;
            disk.write_at(&aside, at - log.offset, part)?;
            at += part.len() as u64;
        }
        // Before the log is truncated: after a power failure, one of the two files has the bytes.
        disk.sync_file(&aside)?;
        warn!(log = log.path, offset = log.offset, %aside, "session log damaged: the rest of it is set aside, packets that need it are lost");
    }
    disk.truncate(log.path, log.offset)?;
    Ok(damage == Damage::Corrupt)
}

/// Reads a session log record by record.
struct LogReader<'a> {
    path: &'a str,
    length: u64,
    /// Offset of the next record, in bytes.
    offset: u64,
    damage: Option<Damage>,
}

impl LogReader<'_> {
    /// Reads the header and the first record.
    fn first(&mut self, disk: &mut impl Disk) -> io::Result<Option<LogRecord>> {
        let mut magic = [0; HEADER_BYTES];
        if self.length < magic.len() as u64 {
            self.damage = Some(Damage::Torn);
            return Ok(None);
        }
        disk.read_at(self.path, 0, &mut magic)?;
        if magic != SESSION_LOG {
            self.damage = Some(Damage::Corrupt);
            return Ok(None);
        }
        Ok(self.next(disk)?.map(|(_, record)| record))
    }

    /// Reads the next record, and returns it with its offset. None at the end, and at damage.
    fn next(&mut self, disk: &mut impl Disk) -> io::Result<Option<(u64, LogRecord)>> {
        let left = self.length - self.offset;
        if left == 0 {
            return Ok(None);
        }
        let mut head = [0; RECORD_HEAD_BYTES];
        if left < head.len() as u64 {
            self.damage = Some(Damage::Torn);
            return Ok(None);
        }
        disk.read_at(self.path, self.offset, &mut head)?;
        let [l0, l1, l2, l3, ..] = head;
        let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3])) + head.len() as u64;
        if length > left {
            self.damage = Some(Damage::Torn);
            return Ok(None);
        }
        let body = read_body(disk, self.path, self.offset, length)?;
        let record = body.and_then(|body| LogRecord::decode(&body).ok());
        let Some(record) = record else {
            self.damage = Some(Damage::Corrupt);
            return Ok(None);
        };
        let at = self.offset;
        self.offset += length;
        Ok(Some((at, record)))
    }
}
