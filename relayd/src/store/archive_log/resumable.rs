//! Sessions that could be resumed, and have ended before the archive had all of them: their logs
//! say where each packet is, too.

use archive::name::SessionKey;
use jiff::tz::TimeZone;
use wire::{FileName, TracePath};

use super::record::{
    ArchiveRecord, LoggedArchive, LoggedChunk, SeqMark, StreamNames, TracefileKey,
};
use crate::store::layout::chunk_date;
use crate::store::session_log::{FilePosition, LoggedSession, LoggedStream, Mark};

impl LoggedArchive {
    /// What the next relay needs to archive a session that cannot be resumed any more. None: its
    /// log does not say which packets it has.
    #[must_use]
    pub fn of_resumable(
        logged: &LoggedSession,
        created: u64,
        time_zone: &TimeZone,
    ) -> Option<Self> {
        let request = &logged.created;
        let recording = request.recording.as_ref()?;
        let mut archive = Self {
            key: SessionKey {
                producer: recording.daemon.0,
                id: recording.id,
            },
            created,
            host: request.host.clone(),
            name: request.name.clone(),
            live_timer: request.live_timer,
            trace_format: request.trace_format,
            directory: Some(logged.directory.clone()),
            has_expired: !logged.is_complete(),
            streams: Default::default(),
            chunks: Default::default(),
            marks: Default::default(),
        };
        let chunk = logged.chunk.as_ref().map(|chunk| chunk.chunk);
        if let Some(chunk) = &logged.chunk {
            let began = chunk_date(chunk.created, time_zone).ok()?;
            let chunk_names = LoggedChunk {
                began: began.as_str().into(),
                name: None,
                is_deleted: false,
            };
            archive.chunks.insert(Some(chunk.chunk), chunk_names);
        }
        for (key, stream) in &logged.streams {
            let request = &stream.opened.stream;
            let names = StreamNames {
                path: TracePath::parse_rooted(&request.path).ok()?,
                name: FileName::parse(&request.channel).ok()?,
                is_numbered: request.tracefile_size.0 > 0,
            };
            archive.streams.insert(*key, names);
            let first = stream.marks.front().map(|mark| mark.at);
            if key.is_metadata {
                continue;
            } else if first != Some(FilePosition::default()) {
                // Older marks were dropped, because there were too many.
                return None;
            }
            for mark in &stream.marks {
                let key = TracefileKey {
                    stream: key.number,
                    chunk,
                    file: number_in_name(stream, mark),
                };
                let (packets, seq) = (mark.at.packets, mark.seq);
                archive.apply(ArchiveRecord::Mark(key, SeqMark { packets, seq }));
            }
        }
        Some(archive)
    }
}

/// Number in the name of the tracefile of a mark.
fn number_in_name(stream: &LoggedStream, mark: &Mark) -> u64 {
    let request = &stream.opened.stream;
    match (request.tracefile_size.0, request.tracefile_count) {
        (0, _) => 0,
        (_, 0) => mark.at.file,
        (_, count) => mark.at.file % count,
    }
}
