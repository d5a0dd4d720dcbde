//! The forms in which the records of a recording are written: `trace.json`, or `trace.bin` of
//! version 1.

mod cbor;

use crate::record::Record;

/// A form of the file with the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    /// `trace.json`, one record on each line.
    #[default]
    Json,
    /// `trace.bin` of version 1: CBOR in Zstandard frames with a seek table.
    Binary,
}

impl OutputForm {
    /// Appends a record. In JSON a comma and the end of the line before it come first, even if it
    /// is the first record.
    pub fn write(self, record: &Record<'_>, to: &mut Vec<u8>) {
        match self {
            Self::Json => {
                to.extend_from_slice(b",\n");
                record.write_json(to);
            }
            Self::Binary => {
                // Converted from JSON, so that both forms of a record say the same.
                let mut json = Vec::new();
                record.write_json(&mut json);
                let begin = to.len();
                // Only a value that is no JSON could not be written.
                if cbor::write_json(&json, to).is_err() {
                    to.truncate(begin);
                }
            }
        }
    }
}
