//! The packets of tracefiles, byte for byte.

use std::collections::BTreeMap;
use std::path::Path;

use tests::tree::{INDEX_ENTRY, INDEX_HEADER, tree};

/// Offset of a packet's size, and of its number, in an index entry.
const SIZE_FIELD: usize = 8;
const NUMBER_FIELD: usize = 64;

/// Packets of one stream, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Packets(BTreeMap<u64, Vec<u8>>);

impl Packets {
    /// Adds the packets of all tracefiles below a directory, which has one stream. Copies of a
    /// packet must be identical.
    pub(crate) fn add(&mut self, directory: &Path) {
        let nodes = tree(directory);
        for (name, index) in &nodes {
            let Some((trace, file)) = name
                .strip_suffix(".idx")
                .and_then(|name| name.split_once("/index/"))
            else {
                continue;
            };
            let data = nodes[&format!("{trace}/{file}")].contents.as_deref();
            let entries = index.contents.as_deref().unwrap_or_default();
            let entries = entries.get(INDEX_HEADER..).unwrap_or_default();
            for entry in entries.chunks_exact(INDEX_ENTRY) {
                self.add_packet(name, entry, data.unwrap());
            }
        }
    }

    /// Number of packets.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Expects that a trace has these packets and no others, one after the other.
    pub(crate) fn assert_are(&self, trace: &Path) {
        let files = tree(trace).into_iter();
        let streams =
            files.filter(|(name, node)| node.contents.is_some() && !name.ends_with("metadata"));
        let streams: Vec<_> = streams.map(|(_, node)| node.contents.unwrap()).collect();
        let [stream] = &streams[..] else {
            panic!("{} streams", streams.len());
        };
        let mut rest = &stream[..];
        for (number, packet) in &self.0 {
            let after = rest.strip_prefix(&packet[..]);
            rest = after.unwrap_or_else(|| panic!("packet {number} is not the same"));
        }
        assert!(rest.is_empty(), "{} bytes more", rest.len());
    }

    fn add_packet(&mut self, name: &str, entry: &[u8], data: &[u8]) {
        let field =
            |at: usize| u64::from_be_bytes(*entry[at..].first_chunk().expect("8 bytes follow"));
        let (begin, len) = (field(0) as usize, field(SIZE_FIELD) as usize / 8);
        if len == 0 {
            // A beacon.
            return;
        }
        let number = field(NUMBER_FIELD);
        let packet = data[begin..begin + len].to_vec();
        let earlier = self.0.insert(number, packet.clone());
        assert!(
            earlier.is_none_or(|earlier| earlier == packet),
            "{name}: packet {number} differs from its copy"
        );
    }
}
