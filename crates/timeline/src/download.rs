//! The events of a range as a file: decoded again from the packets of the history, and written by
//! the same sinks as those of `test-live`.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use ctf::decode::Event;
use hyper::body::Frame;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::timeout;
use viewer::filter::Filter;
use viewer::sink::{Origin, Sink, SinkError};
use viewer::time::Nanoseconds;

use super::archive;
use super::client_clocks::ClientClocks;
use super::locations::Locations;
use super::packet_log::{LoggedPacket, PacketLog};
use super::replay::{Events, Replay};
use super::sent::{SentEvents, SentTime};

/// Largest number of bytes of packets that are decoded for one file: they are in memory at a time.
const MAX_PACKET_BYTES: usize = 512 << 20;
/// Parts of a file that wait for the network. A part has about 64 KiB.
const MAX_WAITING_PARTS: usize = 8;
/// Time for a part to leave.
const PART_TIMEOUT: Duration = Duration::from_secs(30);

/// The form of a file that the page offers.
#[derive(Debug, Clone, Copy)]
pub struct DownloadFormat {
    /// The name by which the page asks for it.
    pub name: &'static str,
    /// The name of the file.
    pub file: &'static str,
    /// The type of the file.
    pub media_type: &'static str,
    /// How the file is written.
    pub content: Content,
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// By a sink that is shown the events of the range.
    Events(fn(Box<dyn Write>) -> Box<dyn Sink>),
    /// The packets themselves in an archive: whole, and without a filter.
    Packets,
}

/// The events that are wanted.
#[derive(Debug)]
pub(super) struct Selected {
    pub(super) format: DownloadFormat,
    /// The first time, in nanoseconds.
    pub(super) from: i64,
    /// The last time, in nanoseconds.
    pub(super) to: i64,
    pub(super) filter: Option<Filter>,
}

/// Why there is no file of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    /// One file may not be made of so many packets.
    #[error(
        "the range has more than {} MiB of packets; select a shorter one, or use test-live --begin and --end",
        MAX_PACKET_BYTES >> 20
    )]
    TooLong,
    /// The file would not be complete. The time is in nanoseconds.
    #[error(
        "the packets until {} are no longer kept; select a range that begins later",
        show_time(*until)
    )]
    Dropped {
        /// The last time of an event of the packets that were dropped.
        until: i64,
    },
}

fn show_time(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(ns.into())
        .map_or_else(|_| ns.to_string(), |time| time.to_string())
}

impl DownloadFormat {
    /// Whether the file can have only the events that match a filter.
    pub(super) fn has_filter(&self) -> bool {
        matches!(self.content, Content::Events(_))
    }
}

/// The packets that may have events of a range, whose times are in nanoseconds.
///
/// # Errors
/// If they are too many, or have been dropped.
pub(super) fn packets(log: &PacketLog, from: i64, to: i64) -> Result<Vec<LoggedPacket>, Refused> {
    let packets = log.packets_between((from, to), MAX_PACKET_BYTES);
    let packets = packets.ok_or(Refused::TooLong)?;
    match log.dropped_until() {
        Some(until) if from <= until => Err(Refused::Dropped { until }),
        _ => Ok(packets),
    }
}

/// Begins to write a file, on a thread of its own that has `permit`.
///
/// # Errors
/// If there is no file of this range.
pub(super) fn start(
    selected: Selected,
    log: &PacketLog,
    permit: OwnedSemaphorePermit,
) -> Result<Body, Refused> {
    let packets = packets(log, selected.from, selected.to)?;
    let (clocks, locations) = (Arc::clone(&log.clocks), Arc::clone(&log.locations));
    let (sender, parts) = mpsc::channel(MAX_WAITING_PARTS);
    let is_complete = Arc::new(AtomicBool::new(false));
    // Dropped when the thread has said whether the file is complete: only then the body ends.
    let (last, completed) = (sender.clone(), Arc::clone(&is_complete));
    let out = PartWriter {
        sender,
        // The thread belongs to no runtime: it sends through that of the server.
        handle: Handle::current(),
    };
    let started = thread::Builder::new()
        .name("download".to_owned())
        .spawn(move || {
            match write(selected, &packets, clocks, locations, out) {
                Ok(()) => completed.store(true, Ordering::Release),
                Err(error) => tracing::warn!(%error, "download not complete"),
            }
            drop((last, permit));
        });
    if let Err(error) = started {
        // No part comes then, and the body ends with an error: browsers drop the file.
        tracing::warn!(%error, "cannot start a thread for a download");
    }
    Ok(Body::new(Parts { parts, is_complete }))
}

/// Writes the events of packets.
fn write(
    selected: Selected,
    packets: &[LoggedPacket],
    clocks: Arc<ClientClocks>,
    locations: Arc<Locations>,
    out: impl Write + 'static,
) -> Result<(), SinkError> {
    let sink = match selected.format.content {
        Content::Packets => return Ok(archive::write(packets, out)?),
        Content::Events(open) => open(Box::new(out)),
    };
    let mut range = Range {
        selected,
        sent: SentEvents::new(clocks),
        locations,
        sink,
    };
    let mut replay = Replay::new(true);
    for packet in packets {
        replay.add(packet, &mut range)?;
    }
    replay.finish(&mut range)?;
    // Whether packets are missing was found out before the file was begun.
    range.sink.finish(true).map(drop)
}

/// Shows the events of a range to a sink.
struct Range {
    selected: Selected,
    sent: SentEvents,
    locations: Arc<Locations>,
    sink: Box<dyn Sink>,
}

impl Events for Range {
    fn event(
        &mut self,
        event: &Event<'_>,
        time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        let Selected {
            from, to, filter, ..
        } = &mut self.selected;
        let range = Nanoseconds::new(*from)..=Nanoseconds::new(*to);
        let is_within = match self.sent.time(event, origin.trace.key)? {
            None => range.contains(&time),
            Some(SentTime::At(time)) => range.contains(&Nanoseconds::new(time)),
            // Names are needed whatever the range is.
            Some(SentTime::Always) => true,
        };
        let is_selected = is_within
            && filter
                .as_mut()
                .is_none_or(|filter| filter.matches(event, origin));
        if is_selected {
            let locations = self.locations.locate(event, origin)?;
            let origin = Origin {
                locations: locations.as_ref(),
                ..origin
            };
            self.sink.event(event, origin)?;
        }
        Ok(true)
    }
}

/// Passes what is written to a response, and waits until that takes it.
struct PartWriter {
    sender: Sender<Bytes>,
    handle: Handle,
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The sink fills its buffer again: the part needs bytes of its own.
        let part = Bytes::copy_from_slice(bytes);
        // A browser that takes nothing must not keep the thread and the packets for ever.
        let sent = self
            .handle
            .block_on(async { timeout(PART_TIMEOUT, self.sender.send(part)).await });
        match sent {
            Ok(Ok(())) => Ok(bytes.len()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body of a response. It ends with an error if the file is not complete, so that browsers do
/// not keep it.
struct Parts {
    parts: Receiver<Bytes>,
    is_complete: Arc<AtomicBool>,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let part = ready!(self.parts.poll_recv(context));
        let is_complete = || self.is_complete.load(Ordering::Acquire);
        Poll::Ready(match part {
            Some(part) => Some(Ok(Frame::data(part))),
            None if is_complete() => None,
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer::attach::{MemoryBudget, Packet, Reservation};
    use viewer::test_support::TestOrigin;

    #[test]
    fn range_whose_packets_are_too_many_or_no_longer_kept_is_refused() {
        let log = PacketLog::new(1 << 20, Arc::default());
        let origin = TestOrigin::new("t", "s");
        let stream = Arc::new(origin.stream.clone());
        log.add_metadata(b"m", &origin.trace);
        // Zeros are small when they are compressed.
        for number in 0..33 {
            let zeros = Packet::in_memory(
                vec![0; 16 << 20],
                Reservation::none(&MemoryBudget::default()),
            );
            log.add_packet(&zeros, origin.trace.key, &stream).unwrap();
            log.set_times(number, (number.into(), number.into()));
        }
        let refused = |log: &PacketLog, from, to| packets(log, from, to).err();
        assert_eq!(refused(&log, 0, 31), None);
        assert_eq!(refused(&log, 0, 32), Some(Refused::TooLong));

        // There is room for one packet.
        let small = PacketLog::new(150, Arc::default());
        small.add_metadata(b"m", &origin.trace);
        for number in 0..2 {
            let packet = Packet::in_memory(vec![1], Reservation::none(&MemoryBudget::default()));
            small.add_packet(&packet, origin.trace.key, &stream);
            small.set_times(number, (7, 7));
        }
        assert_eq!(refused(&small, 7, 9), Some(Refused::Dropped { until: 7 }));
        assert_eq!(refused(&small, 8, 9), None);
        let text = "the packets until 1970-01-01T00:00:00Z are no longer kept; select a range that begins later";
        let dropped = Refused::Dropped { until: 0 };
        assert_eq!(dropped.to_string(), text);
    }
}
