//! Repairs the files of one trace directory that no relay is writing any more.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use ctf::index::{Beacon, Entry, IndexFormat, MAX_ENTRY_BYTES};
use tracing::{info, warn};
use wire::Timestamp;

use super::directory::{Listing, open_directory, open_file, open_if_exists};
use super::index::{self, Follows, ValidEntries, invalid_data};
use super::metadata::{self, MetadataPlan};
use super::packets::{PacketReader, is_all_zeros};
use super::{Evidence, INDEX_DIRECTORY, Repair};
use crate::limits::{MAX_REBUILT_ENTRIES, MAX_REPAIRED_METADATA};
use crate::store::{disk, is_locked, open_marker};

/// Name under which metadata that declares no stream is kept. Readers ignore it, because it begins
/// with a dot.
const UNUSABLE_METADATA: &[u8] = b".metadata-incomplete";

/// A trace directory while it is being repaired.
#[derive(Debug)]
pub(super) struct Trace<'a> {
    pub directory: &'a OwnedFd,
    pub listing: &'a Listing,
    pub evidence: Evidence,
    index: Option<OwnedFd>,
    reader: Option<PacketReader>,
    metadata: Option<(File, MetadataPlan)>,
    /// Whether everything that the relay wrote is in the files: there has been no power loss since.
    is_complete: bool,
    /// Whether a relay is writing one of the files.
    is_busy: bool,
    has_changed: bool,
    has_failed: bool,
}

/// The entries that an index file has after its repair, and the length of its tracefile.
#[derive(Debug)]
struct Survey {
    format: IndexFormat,
    /// Number of entries at the beginning that stay.
    kept: u64,
    /// Entries that are added after those that stay.
    added: Vec<Entry>,
    /// Length of the tracefile in bytes.
    end: u64,
}

impl<'a> Trace<'a> {
    pub(super) fn new(directory: &'a OwnedFd, listing: &'a Listing, evidence: Evidence) -> Self {
        Self {
            directory,
            listing,
            evidence,
            index: None,
            reader: None,
            metadata: None,
            is_complete: false,
            is_busy: false,
            has_changed: false,
            has_failed: false,
        }
    }

    /// Repairs the trace, unless a relay is writing it.
    pub(super) fn repair(mut self, repair: &mut Repair<'_>) -> io::Result<()> {
        let metadata = open_if_exists(self.directory.as_fd(), b"metadata");
        // A relay that writes the trace keeps its metadata locked, even while its idle tracefiles
        // are closed.
        if matches!(&metadata, Ok(Some(file)) if is_locked(file)) {
            return Ok(());
        }
        let mut indexes = Vec::new();
        if self.listing.has_directory(INDEX_DIRECTORY) {
            let index = open_directory(self.directory, INDEX_DIRECTORY.as_bytes())?;
            indexes = Listing::of(&index)?.files;
            self.index = Some(index);
        }
        let names = self.streams(&indexes, repair);
        if names.is_empty() && self.evidence == Evidence::None {
            return Ok(());
        }
        self.is_complete = self.has_no_power_loss(repair.boot);
        repair.at_name(b"metadata", |repair| {
            if let Err(error) = metadata.and_then(|file| self.plan_metadata(file)) {
                self.fail(repair, &error);
            }
        });
        for name in names {
            repair.at_name(&name, |repair| {
                if let Err(error) = self.repair_stream(repair, &name) {
                    self.fail(repair, &error);
                }
            });
        }
        // A relay is alive, to which the metadata and the markers belong.
        if self.is_busy {
            return Ok(());
        }
        // After the streams, whose packets may need declarations that the metadata loses.
        self.repair_metadata(repair)?;
        self.finish()
    }

    fn fail(&mut self, repair: &mut Repair<'_>, error: &io::Error) {
        self.has_failed = true;
        repair.failed(error);
    }

    /// The names of the streams that may have to be repaired. Without evidence for the whole
    /// directory, these are the streams whose index file ends in a beacon, and if there are any,
    /// those whose index file is missing or too short.
    fn streams(&self, indexes: &[Vec<u8>], repair: &mut Repair<'_>) -> Vec<Vec<u8>> {
        let data = self.listing.files.iter();
        let data = data.filter(|name| !name.starts_with(b".") && name.as_slice() != b"metadata");
        let indexed = indexes.iter().filter_map(|name| name.strip_suffix(b".idx"));
        let (mut begun, mut short) = (Vec::new(), Vec::new());
        if self.evidence != Evidence::None {
            begun = data.cloned().chain(indexed.map(<[u8]>::to_vec)).collect();
        } else {
            for name in indexed {
                match self.is_begun(name) {
                    Ok(Some(true)) => begun.push(name.to_vec()),
                    Ok(Some(false)) => {}
                    Ok(None) => short.push(name.to_vec()),
                    Err(error) => repair.at_name(name, |repair| repair.failed(&error)),
                }
            }
            if !begun.is_empty() {
                let has_index = |name: &[u8]| indexes.contains(&index_name(name));
                short.extend(data.filter(|name| !has_index(name)).cloned());
                begun.append(&mut short);
            }
        }
        // A name may come both from a tracefile and from an index file.
        begun.sort_unstable();
        begun.dedup();
        begun
    }

    /// Whether an index file has a header and ends in a beacon. None: it has no header.
    fn is_begun(&self, name: &[u8]) -> io::Result<Option<bool>> {
        let Some(index) = &self.index else {
            return Ok(Some(false));
        };
        let file = open_file(index.as_fd(), &index_name(name), rustix::fs::OFlags::RDONLY)?;
        let has_beacon = index::ends_in_beacon(&file)?;
        // Index files without a beacon are not ours, whatever their header is.
        match index::format_of(&file) {
            Ok(format) => Ok(format.map(|_| has_beacon)),
            Err(error) if has_beacon => Err(error),
            Err(_) => Ok(Some(false)),
        }
    }

    fn is_continued(&self) -> bool {
        self.evidence == Evidence::Resumable
    }

    /// Whether all markers are of this boot. A resumable trace without markers was closed by a
    /// relay that was stopped.
    fn has_no_power_loss(&self, boot: Option<&str>) -> bool {
        let Some(boot) = boot else { return false };
        let mut markers = self.markers();
        // Without a marker or a log, nothing says in which boot the trace was written.
        self.evidence != Evidence::None
            && markers.all(|name| {
                let marker = open_file(self.directory.as_fd(), name, rustix::fs::OFlags::RDONLY);
                marker.is_ok_and(|marker| open_marker::is_of_boot(&marker, boot))
            })
    }

    fn markers(&self) -> impl Iterator<Item = &'a Vec<u8>> {
        let files = self.listing.files.iter();
        files.filter(|name| open_marker::is_marker(name))
    }

    fn plan_metadata(&mut self, file: Option<File>) -> io::Result<()> {
        let Some(file) = file else { return Ok(()) };
        let len = file.metadata()?.len();
        if len > MAX_REPAIRED_METADATA {
            return Err(invalid_data(format!(
                "{len} bytes of metadata are too many"
            )));
        }
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        if self.evidence == Evidence::None || self.is_continued() && self.is_complete {
            // Without a marker only the streams are repaired. What the log of a session says was
            // acknowledged stays.
            self.reader = PacketReader::new(&bytes);
            return Ok(());
        }
        let plan = metadata::plan(&bytes, self.is_continued()).map_err(io::Error::other)?;
        self.reader = plan.readable.as_deref().and_then(PacketReader::new);
        self.metadata = Some((file, plan));
        Ok(())
    }

    fn repair_metadata(&mut self, repair: &mut Repair<'_>) -> io::Result<()> {
        let Some((file, plan)) = self.metadata.take() else {
            return Ok(());
        };
        if !plan.changes() {
            return Ok(());
        }
        let before = file.metadata()?.len();
        self.has_changed = true;
        repair.repaired.metadata += 1;
        let path = repair.path.join("metadata");
        if plan.is_unusable {
            let directory = self.directory.as_fd();
            // An empty file has nothing to keep, and Babeltrace refuses it.
            if before == 0 {
                disk::remove_file_at(directory, b"metadata")?;
            } else {
                disk::rename_at((directory, b"metadata"), (directory, UNUSABLE_METADATA))?;
            }
            warn!(path = %path.display(), "metadata of a crashed relay declares no stream: trace left without metadata");
            return Ok(());
        }
        for range in &plan.blanks {
            disk::write_all_at(&file, &vec![b' '; range.len()], range.start as u64)?;
        }
        if let Some(len) = plan.len {
            disk::set_len(&file, len)?;
        }
        disk::sync_file(&file)?;
        let len = plan.len.unwrap_or(before);
        info!(path = %path.display(), before, len, "metadata of a crashed relay truncated");
        Ok(())
    }

    fn repair_stream(&mut self, repair: &mut Repair<'_>, name: &[u8]) -> io::Result<()> {
        let index_file = match &self.index {
            Some(index) => open_if_exists(index.as_fd(), &index_name(name))?,
            None => None,
        };
        let data = open_if_exists(self.directory.as_fd(), name)?;
        let Some(data) = data else {
            return self.remove_index(repair, name, index_file.as_ref());
        };
        if is_locked(&data) {
            self.is_busy = true;
            return Ok(());
        }
        let data_len = data.metadata()?.len();
        let survey = self.survey(repair, &data, data_len, index_file.as_ref())?;
        self.apply(repair, name, &data, data_len, index_file, &survey)
    }

    /// Removes an index file that has no tracefile, or no entry.
    fn remove_index(
        &mut self,
        repair: &mut Repair<'_>,
        name: &[u8],
        file: Option<&File>,
    ) -> io::Result<()> {
        if let (Some(index), Some(_)) = (&self.index, file) {
            disk::remove_file_at(index.as_fd(), &index_name(name))?;
            repair.repaired.indexes += 1;
            self.has_changed = true;
            info!(path = %repair.path.display(), "index file of a crashed relay removed: it has no packet");
        }
        Ok(())
    }

    /// Decides which entries the index file is to have: all that it has and whose packets are in
    /// the tracefile, then those of packets that have none.
    fn survey(
        &self,
        repair: &mut Repair<'_>,
        data: &File,
        data_len: u64,
        index_file: Option<&File>,
    ) -> io::Result<Survey> {
        let (format, found) = match examine_index(data_len, index_file) {
            Ok(examined) => examined,
            // A header that is damaged. Only with a marker it is certain that it has been ours.
            Err(error) if self.evidence != Evidence::None => {
                repair.damaged(&error.to_string());
                (None, None)
            }
            Err(error) => return Err(error),
        };
        let format = format.unwrap_or(IndexFormat::V1_1);
        let mut survey = Survey {
            format,
            kept: 0,
            added: Vec::new(),
            end: 0,
        };
        // What no power loss has taken from the disk is not judged by what is in it.
        let mut is_suspect = !self.is_complete;
        let mut is_rebuilt = true;
        if let (Some(file), Some(found)) = (index_file, &found) {
            (survey.kept, survey.end) = (found.count, found.end);
            let contradicted = match &self.reader {
                // What was acknowledged is as its entry says, whatever its packet is.
                Some(reader) if !self.is_complete && !self.is_continued() => {
                    reader.contradicted(data, file, format, found)?
                }
                _ => None,
            };
            if let Some(number) = contradicted {
                survey.keep(file, number)?;
            }
            if let Follows::Invalid(reason) = &found.follows {
                repair.damaged(reason);
            } else if let Some(number) = contradicted {
                repair.damaged(&format!(
                    "entry {number} of the index file: its packet has other times"
                ));
            } else {
                is_suspect = found.follows == Follows::Zeros;
                is_rebuilt = false;
                if !self.is_complete {
                    self.drop_damaged(data, file, &mut survey, is_suspect)?;
                }
            }
        }
        match &self.reader {
            Some(reader) if is_rebuilt || !self.is_continued() => {
                survey.add_whole_packets(reader, data, data_len, is_suspect)?;
                let past = found.is_some_and(|found| found.follows == Follows::PastData);
                if past && !survey.added.is_empty() {
                    repair.damaged(
                        "an entry points past the end of the tracefile, which has its packet",
                    );
                }
                if (is_rebuilt || past) && reader.is_foreign_at(data, survey.end, data_len)? {
                    return Err(invalid_data(format!(
                        "the index file cannot be rebuilt: there is no packet at byte {} of the tracefile",
                        survey.end
                    )));
                }
            }
            // No reader can do anything with the packets.
            None if is_rebuilt && self.lacks_metadata() => survey.end = data_len,
            None if is_rebuilt && data_len > survey.end => {
                let text = "the index file cannot be rebuilt without metadata".to_owned();
                return Err(invalid_data(text));
            }
            _ => {}
        }
        Ok(survey)
    }

    /// Drops the entries at the end that a power loss has kept from the disk in part, or their
    /// packets. If there are any, or `is_suspect`, or if the metadata has lost declarations,
    /// entries are kept only up to the first whose packet cannot be read.
    fn drop_damaged(
        &self,
        data: &File,
        file: &File,
        survey: &mut Survey,
        mut is_suspect: bool,
    ) -> io::Result<()> {
        let has_lost_metadata = self.has_lost_metadata();
        while let Some(last) = survey.kept.checked_sub(1) {
            let entry = index::read_entry(file, survey.format, last)?;
            let is_intact = match &self.reader {
                Some(reader) => {
                    reader.is_intact(data, &entry)?
                        && !(index::ends_in_zeros(&entry, survey.format)
                            && reader.contradicts(data, &entry)?)
                }
                None => !is_all_zeros(data, entry.offset.0..index::end_of(&entry))?,
            };
            if is_intact {
                break;
            }
            survey.keep(file, last)?;
            is_suspect = true;
        }
        let Some(reader) = &self.reader else {
            return Ok(());
        };
        if !is_suspect && !has_lost_metadata {
            return Ok(());
        }
        for number in 0..survey.kept {
            let entry = index::read_entry(file, survey.format, number)?;
            let is_readable = match has_lost_metadata {
                true => reader.is_readable(data, &entry)?,
                false => reader.is_intact(data, &entry)?,
            };
            if !is_readable {
                return survey.keep(file, number);
            }
        }
        Ok(())
    }

    /// Whether declarations are lost for good. The producer of a resumable session sends them
    /// again.
    fn has_lost_metadata(&self) -> bool {
        let plan = self.metadata.as_ref().map(|(_, plan)| plan);
        plan.is_some_and(MetadataPlan::changes) && !self.is_continued()
    }

    /// Whether the trace has no metadata, or none that is usable.
    fn lacks_metadata(&self) -> bool {
        let plan = self.metadata.as_ref().map(|(_, plan)| plan);
        self.evidence == Evidence::Marker && plan.is_none_or(|plan| plan.is_unusable)
    }

    /// Writes what is missing, in an order in which every step leaves evidence for the next start:
    /// the index file has its beacon until the tracefile is truncated.
    fn apply(
        &mut self,
        repair: &mut Repair<'_>,
        name: &[u8],
        data: &File,
        data_len: u64,
        index_file: Option<File>,
        survey: &Survey,
    ) -> io::Result<()> {
        let entries = survey.kept + survey.added.len() as u64;
        let position = survey.format.position(entries);
        let mut has_changed = false;
        let index_file = match index_file {
            None if !survey.added.is_empty() => Some(self.create_index(name)?),
            existing => existing,
        };
        if let Some(file) = &index_file
            && entries > 0
            && self.write_entries(file, survey, position)?
        {
            repair.repaired.rebuilt += 1;
            has_changed = true;
        }
        let excess = data_len.saturating_sub(survey.end);
        if excess > 0 {
            disk::set_len(data, survey.end)?;
            // On the disk before the beacon is removed, which is the evidence for another repair.
            disk::sync_file(data)?;
            repair.repaired.tracefiles += 1;
            repair.repaired.bytes += excess;
            has_changed = true;
        }
        if let Some(file) = &index_file {
            has_changed |= self.end_index(repair, name, file, survey.format, entries)?;
        }
        self.has_changed |= has_changed;
        if has_changed {
            info!(path = %repair.path.display(), entries, cut = excess, "stream of a crashed relay repaired");
        }
        Ok(())
    }

    /// Makes the index file end with its last entry, or with the beacon after it if the stream
    /// goes on. Returns whether that changed the file.
    fn end_index(
        &mut self,
        repair: &mut Repair<'_>,
        name: &[u8],
        file: &File,
        format: IndexFormat,
        entries: u64,
    ) -> io::Result<bool> {
        let position = format.position(entries);
        let len = file.metadata()?.len();
        if self.is_continued() && index::format_of(file).ok().flatten().is_some() {
            let beacon = Beacon::new(Timestamp(0)).to_bytes();
            let end = position + beacon.len() as u64;
            if len == end && index::ends_in_beacon(file)? {
                return Ok(false);
            }
            disk::write_all_at(file, &beacon, position)?;
            disk::set_len(file, end)?;
        } else if entries == 0 {
            self.remove_index(repair, name, Some(file))?;
            return Ok(true);
        } else if len == position {
            return Ok(false);
        } else {
            disk::set_len(file, position)?;
        }
        disk::sync_file(file)?;
        repair.repaired.indexes += 1;
        Ok(true)
    }

    fn create_index(&mut self, name: &[u8]) -> io::Result<File> {
        if self.index.is_none() {
            let directory = self.directory.as_fd();
            disk::make_directory_at(directory, INDEX_DIRECTORY.as_bytes())?;
            self.index = Some(open_directory(directory, INDEX_DIRECTORY.as_bytes())?);
        }
        let index = self.index.as_ref().map(OwnedFd::as_fd);
        let missing = || io::Error::other("the directory of index files is missing");
        let index: BorrowedFd<'_> = index.ok_or_else(missing)?;
        disk::create_at(index, &index_name(name))
    }

    /// Writes header and entries, unless the file has them already. Returns whether it had not.
    fn write_entries(&self, file: &File, survey: &Survey, end: u64) -> io::Result<bool> {
        let mut bytes = Vec::new();
        let mut at = survey.format.position(survey.kept);
        if survey.kept == 0 {
            at = 0;
            bytes = survey.format.header_bytes();
        }
        for entry in &survey.added {
            bytes.extend(survey.format.encode(entry, &mut [0; MAX_ENTRY_BYTES]));
        }
        // An interrupted repair may have written them.
        let mut existing = vec![0; bytes.len()];
        if file.read_exact_at(&mut existing, at).is_ok() && existing == bytes {
            return Ok(false);
        }
        // First after the entries: if this process dies in between, the file still ends in a
        // beacon.
        disk::write_all_at(file, &Beacon::new(Timestamp(0)).to_bytes(), end)?;
        disk::write_all_at(file, &bytes, at)?;
        Ok(true)
    }

    /// Removes the markers, which show that the trace has been repaired to the end.
    fn finish(&self) -> io::Result<()> {
        if self.has_changed {
            if let Some(index) = &self.index {
                disk::sync_directory(index)?;
            }
            disk::sync_directory(self.directory)?;
        }
        // The next start has to find the markers, to go on or to try again.
        if self.is_continued() || self.has_failed {
            return Ok(());
        }
        for marker in self.markers() {
            disk::remove_file_at(self.directory.as_fd(), marker)?;
        }
        Ok(())
    }
}

impl Survey {
    /// Drops the entries of the index file from this number on.
    fn keep(&mut self, file: &File, count: u64) -> io::Result<()> {
        self.kept = count;
        self.end = match count.checked_sub(1) {
            Some(last) => index::end_of(&index::read_entry(file, self.format, last)?),
            None => 0,
        };
        Ok(())
    }

    /// Adds entries for the whole packets after the last entry.
    fn add_whole_packets(
        &mut self,
        reader: &PacketReader,
        data: &File,
        data_len: u64,
        is_suspect: bool,
    ) -> io::Result<()> {
        while let Some(entry) = reader.entry_at(data, self.end, data_len)? {
            let is_whole = match is_suspect {
                true => reader.is_readable(data, &entry)?,
                false => reader.is_intact(data, &entry)?,
            };
            if !is_whole {
                break;
            }
            // The entries are in memory until the stream has been examined.
            if self.added.len() >= MAX_REBUILT_ENTRIES {
                return Err(invalid_data(
                    "too many packets have no index entry".to_owned(),
                ));
            }
            self.end = index::end_of(&entry);
            self.added.push(entry);
        }
        Ok(())
    }
}

/// The format and the valid entries of an index file.
fn examine_index(
    data_len: u64,
    file: Option<&File>,
) -> io::Result<(Option<IndexFormat>, Option<ValidEntries>)> {
    let Some(file) = file else {
        return Ok((None, None));
    };
    let Some(format) = index::format_of(file)? else {
        return Ok((None, None));
    };
    let found = index::valid_entries(file, format, data_len)?;
    Ok((Some(format), Some(found)))
}

fn index_name(data: &[u8]) -> Vec<u8> {
    [data, b".idx"].concat()
}
