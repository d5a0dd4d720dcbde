//! The files of a session that has ended: checked, then removed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ctf::index::{Entry, read};
use tests::tree::files;

use super::sessions::CHANNELS;

/// Returns the directory of a session, whose name ends with the creation time.
fn session_directory(output: &Path, name: &str) -> PathBuf {
    let prefix = format!("{name}-2");
    let is_it = |path: &PathBuf| {
        let last = path.file_name().unwrap().to_string_lossy();
        last.starts_with(&prefix)
    };
    let entries = fs::read_dir(output.join("host")).unwrap();
    let mut found = entries.map(|entry| entry.unwrap().path()).filter(is_it);
    let one = found.next().unwrap();
    assert_eq!(found.next(), None);
    one
}

/// Checks that every stream has its packets below `sent`, each once and whole, over all chunks.
pub fn check_session(output: &Path, name: &str, sent: u64) {
    let directory = session_directory(output, name);
    let indexes = files(&directory, ".idx");
    for channel in CHANNELS {
        let file = format!("/index/{channel}.idx");
        let mut packets = Vec::new();
        for (path, bytes) in indexes.iter().filter(|(path, _)| path.ends_with(&file)) {
            let data = directory.join(path.replace(&file, &format!("/{channel}")));
            let data = File::open(data).unwrap();
            let entries = read(bytes).unwrap().entries;
            packets.extend(entries.iter().map(|entry| packet_number(&data, entry)));
        }
        packets.sort_unstable();
        let all: Vec<u64> = (0..sent).collect();
        assert!(
            packets == all,
            "{name}, {channel}: {} of {sent} packets",
            packets.len()
        );
    }
}

/// Returns the number of a packet by its index entry, checked against its bytes.
fn packet_number(data: &File, entry: &Entry) -> u64 {
    let number = entry.packet.packet_seq.unwrap().0;
    let mut bytes = vec![0; usize::try_from(entry.packet.packet_size.0 / 8).unwrap()];
    data.read_exact_at(&mut bytes, entry.offset.0).unwrap();
    let fill = u8::try_from(number % 251).unwrap();
    assert!(bytes.iter().all(|byte| *byte == fill), "packet {number}");
    number
}

/// Removes the files of a session, so that a long soak does not fill the disk.
pub fn remove_session(output: &Path, name: &str) {
    fs::remove_dir_all(session_directory(output, name)).unwrap();
}
