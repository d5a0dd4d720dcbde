//! The record of a trace: counters and pending exports, in a hidden JSON file next to the events.
//!
//! `tldrs list --long` shows the counters; the next start of the daemon makes the pending exports
//! of a daemon that was killed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tef::Repairs;
use tracing::warn;

use crate::limits::MAX_RECORD_BYTES;
use crate::open::{open_own, open_regular, remove_if_exists};

/// The record of a trace. Counters are sums since the record was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceRecord {
    /// The trace's id, as clients give it.
    pub id: String,
    /// Number of clients that have the trace open; stale if the daemon was killed.
    pub clients: u32,
    /// Number of times that a client has opened the trace.
    pub connections: u64,
    /// Number of stored events.
    pub events: u64,
    /// Repairs of stored events.
    #[serde(with = "SavedRepairs")]
    pub repaired: Repairs,
    /// Number of refused lines.
    pub refused: u64,
    /// Number of events that could not be stored or forwarded.
    pub lost: u64,
    /// Exports to be made when the last client disconnects.
    #[serde(rename = "wishes")]
    pub pending_exports: Vec<PendingExport>,
}

/// The counters of [`Repairs`], as they are saved.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Repairs")]
struct SavedRepairs {
    #[serde(default)]
    not_finite: u64,
    #[serde(default)]
    surrogates: u64,
    #[serde(default)]
    not_utf8: u64,
    /// Always 0: the daemon refuses lines that end in a comma.
    #[serde(skip)]
    commas: u64,
}

/// An export to be made when the last client of its trace disconnects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingExport {
    /// The absolute path of the export.
    #[serde(serialize_with = "write_path", deserialize_with = "read_path")]
    pub path: PathBuf,
    /// The user that asked for it: that of the daemon, or any other in a record of an earlier
    /// version.
    pub uid: u32,
}

impl TraceRecord {
    /// Loads the record at this path; returns an empty one if there is none or it cannot be read.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        open_regular(path, OFlags::RDONLY)
            .and_then(|file| Self::read(&file))
            .unwrap_or_default()
    }

    /// Reads a record as [`load`](Self::load) does, but only one that belongs to the user of this
    /// process, and only its pending exports for this user: the daemon makes them.
    pub(crate) fn load_own(path: &Path) -> Self {
        let read = open_own(path, OFlags::RDONLY).and_then(|file| Self::read(&file));
        match read {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                warn!(path = %path.display(), %error, "record of the trace not used; its pending exports are not made");
                Self::default()
            }
            read => {
                let mut record = read.unwrap_or_default();
                let uid = rustix::process::geteuid().as_raw();
                record.pending_exports.retain(|pending| pending.uid == uid);
                record
            }
        }
    }

    fn read(file: &File) -> io::Result<Self> {
        let mut text = Vec::new();
        file.take(MAX_RECORD_BYTES).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Saves the record, and replaces an earlier one atomically.
    ///
    /// # Errors
    /// If the system refuses; then the earlier one is unchanged.
    pub fn save(&self, path: &Path, sync: bool) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        // A daemon that was killed may have left the file, or another user may have made it, to
        // receive the record or to lead it elsewhere. So it is removed, and `create_new` fails if
        // it exists again.
        remove_if_exists(Path::new(&new))?;
        let mut file = File::create_new(&new)?;
        file.write_all(&text)?;
        if sync {
            file.sync_data()?;
        }
        fs::rename(&new, path)
    }
}

/// A path in the record: text if it is UTF-8, otherwise its bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenPath {
    Text(String),
    Bytes(Vec<u8>),
}

fn write_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let written = match path.to_str() {
        Some(text) => WrittenPath::Text(text.to_owned()),
        None => WrittenPath::Bytes(OsStr::as_bytes(path.as_os_str()).to_vec()),
    };
    written.serialize(serializer)
}

fn read_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(match WrittenPath::deserialize(deserializer)? {
        WrittenPath::Text(text) => text.into(),
        WrittenPath::Bytes(bytes) => OsString::from_vec(bytes).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let pending = |path: &[u8]| PendingExport {
            path: OsStr::from_bytes(path).into(),
            uid: 1,
        };
        let record = TraceRecord {
            id: "a/b\0".to_owned(),
            events: u64::MAX,
            pending_exports: vec![pending(b"/out/t.json"), pending(b"/out/\xff")],
            ..TraceRecord::default()
        };
        record.save(&path, true).unwrap();
        assert_eq!(TraceRecord::load(&path), record);
    }

    #[test]
    fn saving_a_record_writes_through_no_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("precious"), "do not lose me").unwrap();
        for name in ["record", "record.new"] {
            std::os::unix::fs::symlink("precious", at(name)).unwrap();
        }
        let record = TraceRecord {
            events: 7,
            ..TraceRecord::default()
        };
        record.save(&at("record"), false).unwrap();
        assert_eq!(
            fs::read_to_string(at("precious")).unwrap(),
            "do not lose me"
        );
        assert_eq!(TraceRecord::load_own(&at("record")), record);
        assert!(!at("record.new").exists());
    }

    #[test]
    fn record_behind_a_symlink_or_of_another_user_asks_for_no_exports() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let uid = rustix::process::geteuid().as_raw();
        let mut record = TraceRecord {
            pending_exports: vec![PendingExport {
                path: "/etc/stolen".into(),
                uid,
            }],
            ..TraceRecord::default()
        };
        record.save(&at("target"), false).unwrap();
        std::os::unix::fs::symlink("target", at("link")).unwrap();
        assert_eq!(TraceRecord::load_own(&at("link")), TraceRecord::default());
        assert_eq!(TraceRecord::load_own(&at("target")), record);
        let own = record.pending_exports.clone();
        record.pending_exports.push(PendingExport {
            path: "/etc/stolen".into(),
            uid: uid + 1,
        });
        record.save(&at("target"), false).unwrap();
        assert_eq!(TraceRecord::load_own(&at("target")).pending_exports, own);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("target"), Some(65_534), None).unwrap();
            assert_eq!(TraceRecord::load_own(&at("target")), TraceRecord::default());
            assert_eq!(TraceRecord::load(&at("target")), record);
        } else {
            eprintln!("only root can change the owner of a file: only the symlink was tested");
        }
    }

    #[test]
    fn malformed_record_reads_as_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        assert_eq!(TraceRecord::load(&path), TraceRecord::default());
        fs::write(&path, "{\"events\":-1").unwrap();
        assert_eq!(TraceRecord::load(&path), TraceRecord::default());
    }
}
