//! The file with the records: `trace.json`, or `trace.bin` of version 1.
//!
//! Both grow at the end, and are closed after it: by a bracket, or by a table of all frames.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use zstd::bulk::compress;

use super::published_file::PublishedFile;
use codetracer::output_form::OutputForm;

/// The first bytes of `trace.bin`: magic number, version 1, reserved.
const BINARY_MAGIC: [u8; 8] = [0xC0, 0xDE, 0x72, 0xAC, 0xE2, 1, 0, 0];
/// A skippable frame of Zstandard, as the seek table is one.
const SKIPPABLE_MAGIC: [u8; 4] = [0x5E, 0x2A, 0x4D, 0x18];
/// The end of a seek table.
const SEEK_TABLE_MAGIC: [u8; 4] = [0xB1, 0xEA, 0x92, 0x8F];
/// Bytes of records in one frame: readers decompress a frame as a whole.
const MAX_FRAME_BYTES: usize = 1 << 20;
/// The level that the published writer uses.
const COMPRESSION_LEVEL: i32 = 3;
/// Frames of a seek table that is read.
const MAX_FRAMES: u32 = 1 << 24;
/// Bytes of the end of a seek table: number of frames, flags, magic number.
const FOOTER_BYTES: u64 = 9;

/// The file with the records.
#[derive(Debug)]
pub(super) struct EventsFile {
    file: PublishedFile,
    form: OutputForm,
    /// Bytes of records that have been written, before compression.
    written: u64,
    /// Bytes of records in the file that an earlier process has left, before compression.
    to_exceed: u64,
    /// The frames that stay: compressed and uncompressed length.
    frames: Vec<[u32; 2]>,
    is_begun: bool,
}

/// The name of the file.
pub(super) fn name(form: OutputForm) -> &'static str {
    match form {
        OutputForm::Json => "trace.json",
        OutputForm::Binary => "trace.bin",
    }
}

/// A byte that readers ignore at the end of the file.
fn padding(form: OutputForm) -> Option<u8> {
    match form {
        OutputForm::Json => Some(b'\n'),
        OutputForm::Binary => None,
    }
}

impl EventsFile {
    pub(super) fn open(directory: &Arc<OwnedFd>, form: OutputForm) -> io::Result<Self> {
        let file = PublishedFile::open(Arc::clone(directory), name(form), padding(form))?;
        let to_exceed = match file.visible() {
            Some(visible) => record_bytes(visible, form)?,
            None => 0,
        };
        Ok(Self {
            file,
            form,
            written: 0,
            to_exceed,
            frames: Vec::new(),
            is_begun: false,
        })
    }

    /// Whether the file of an earlier process has more than there is with these records.
    pub(super) fn is_behind(&self, certain: &[u8], uncertain: &[u8]) -> bool {
        let more = (certain.len() + uncertain.len()) as u64;
        self.written + more < self.to_exceed
    }

    /// Appends records, which are removed from `certain`, and after them for now those of
    /// `uncertain`.
    pub(super) fn write(
        &mut self,
        certain: &mut Vec<u8>,
        uncertain: &[u8],
        is_published: bool,
    ) -> io::Result<()> {
        let (bytes, end) = match self.form {
            OutputForm::Json => self.array(certain, uncertain),
            OutputForm::Binary => self.frames(certain, uncertain)?,
        };
        self.file.write(&bytes, &end, is_published)?;
        self.written += certain.len() as u64;
        self.is_begun = true;
        if is_published {
            // Readers see this file now: there is nothing left to be exceeded.
            self.to_exceed = 0;
        }
        certain.clear();
        Ok(())
    }

    /// Whether the records that an earlier process has left are the first of those that have been
    /// written since. Frames of the binary form are not compared.
    pub(super) fn has_same_begin(&self) -> io::Result<bool> {
        match self.form {
            OutputForm::Json => self.file.has_same_begin(self.to_exceed),
            OutputForm::Binary => Ok(true),
        }
    }

    pub(super) fn free_spares(&mut self) -> io::Result<()> {
        self.file.free_spares()
    }

    /// Elements of the array, and its end. Each record begins with a comma, of which the first is
    /// none.
    fn array(&self, certain: &[u8], uncertain: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let begin: &[u8] = if self.is_begun { b"" } else { b"[" };
        let has_none = |certain: &[u8]| self.written == 0 && certain.is_empty();
        let without_comma = |records: &[u8]| records.get(1..).unwrap_or_default().to_vec();
        let mut bytes = begin.to_vec();
        if has_none(&[]) {
            bytes.extend(without_comma(certain));
        } else {
            bytes.extend_from_slice(certain);
        }
        let mut end = if has_none(certain) {
            without_comma(uncertain)
        } else {
            uncertain.to_vec()
        };
        end.extend_from_slice(b"\n]\n");
        (bytes, end)
    }

    /// Compressed records, and after them the seek table.
    fn frames(&mut self, certain: &[u8], uncertain: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut bytes = Vec::new();
        if !self.is_begun {
            bytes.extend_from_slice(&BINARY_MAGIC);
        }
        write_frames(certain, &mut self.frames, &mut bytes)?;
        let mut end = Vec::new();
        let certain_frames = self.frames.len();
        write_frames(uncertain, &mut self.frames, &mut end)?;
        write_seek_table(&self.frames, &mut end);
        // The frames of records that are not certain are written again next time.
        self.frames.truncate(certain_frames);
        Ok((bytes, end))
    }
}

fn write_frames(records: &[u8], frames: &mut Vec<[u32; 2]>, to: &mut Vec<u8>) -> io::Result<()> {
    for part in records.chunks(MAX_FRAME_BYTES) {
        let frame = compress(part, COMPRESSION_LEVEL)?;
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        frames.push([length(&frame), length(part)]);
        to.extend_from_slice(&frame);
    }
    Ok(())
}

fn write_seek_table(frames: &[[u32; 2]], to: &mut Vec<u8>) {
    let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
    let length = count.saturating_mul(8).saturating_add(9);
    to.extend_from_slice(&SKIPPABLE_MAGIC);
    to.extend_from_slice(&length.to_le_bytes());
    for number in frames.iter().flatten() {
        to.extend_from_slice(&number.to_le_bytes());
    }
    to.extend_from_slice(&count.to_le_bytes());
    to.push(0);
    to.extend_from_slice(&SEEK_TABLE_MAGIC);
}

/// The bytes of records in a file, before compression; 0 if the file is not whole.
fn record_bytes(file: &File, form: OutputForm) -> io::Result<u64> {
    let length = file.metadata()?.len();
    Ok(match form {
        OutputForm::Json => length_of_array(file, length),
        OutputForm::Binary => sum_of_seek_table(file, length),
    }
    .unwrap_or(0))
}

/// The length without the brackets and line ends around the records.
fn length_of_array(file: &File, length: u64) -> Option<u64> {
    // The bracket and the white space around it are within so many bytes.
    let mut end = [0; 16];
    let end_at = length.saturating_sub(16);
    let end = end.get_mut(..usize::try_from(length - end_at).ok()?)?;
    file.read_exact_at(end, end_at).ok()?;
    let array = end.trim_ascii_end().strip_suffix(b"]")?.trim_ascii_end();
    (end_at + array.len() as u64).checked_sub(1)
}

fn sum_of_seek_table(file: &File, length: u64) -> Option<u64> {
    let mut footer = [0; 9];
    file.read_exact_at(&mut footer, length.checked_sub(FOOTER_BYTES)?)
        .ok()?;
    let [a, b, c, d, _, magic @ ..] = footer;
    let count = u32::from_le_bytes([a, b, c, d]);
    // Another program may have written the file: its numbers are checked before memory is taken.
    if magic != SEEK_TABLE_MAGIC || count > MAX_FRAMES {
        return None;
    }
    let table_bytes = u64::from(count) * 8;
    let table_at = length.checked_sub(FOOTER_BYTES + table_bytes)?;
    let mut table = vec![0; usize::try_from(table_bytes).ok()?];
    file.read_exact_at(&mut table, table_at).ok()?;
    let entries = table.chunks_exact(8);
    // The second number of an entry is the length before compression.
    let lengths = entries.filter_map(|entry| entry.last_chunk().copied().map(u32::from_le_bytes));
    Some(lengths.map(u64::from).sum())
}
