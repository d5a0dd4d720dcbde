//! Threads that decode the streams of complete directories ahead of the mux, and render their events if the sink has a
//! renderer. A stream is decoded by one thread at a time, a batch after the other: at most one batch waits for the mux while
//! the next is decoded, so that memory is bounded.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ctf::Metadata;
use ctf::directory::{StreamFiles, TraceDirectory};

use super::decoding::{Decoding, Piece, TimedEvents};
use crate::attach::{MAX_MEMORY_BYTES, Packet, TraceInfo};
use crate::sink::render::RenderedEvents;
use crate::sink::{Origin, Renderer};

/// Bytes that the batches of all streams together may take, roughly: those of rendered text, or of found events. Few, so
/// that the mux finds most of them in the processor's cache.
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Bytes of a batch where there are few streams.
const BATCH_BYTES: usize = 256 << 10;
/// Largest number of streams that are decoded ahead.
const MAX_STREAMS: usize = 256;
/// Fewest bytes of packets for which threads are started.
const MIN_BYTES: u64 = 4 << 20;

/// The threads. They end when it is dropped.
pub struct DecodeThreads {
    jobs: Sender<Job>,
}

/// A stream that is decoded by the threads.
pub(super) struct Ahead {
    jobs: Sender<Job>,
    trace: Arc<SharedTrace>,
    /// The batch that was begun last. No thread has it if one has panicked, and then waiting fails.
    batch: Option<Receiver<Batch>>,
}

/// What all streams of a trace have in common.
pub(super) struct SharedTrace {
    pub(super) info: TraceInfo,
    pub(super) metadata: Arc<Metadata>,
}

/// Buffers of a piece that has been shown, to be filled again: memory that goes back and forth between threads costs more
/// than the decoding.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) found: TimedEvents,
    pub(super) rendered: RenderedEvents,
}

struct Job {
    decoding: Box<Decoding>,
    buffers: Vec<Buffers>,
    trace: Arc<SharedTrace>,
    done: SyncSender<Batch>,
}

/// A part of a stream, decoded.
pub(super) struct Batch {
    pub(super) decoding: Box<Decoding>,
    pub(super) pieces: VecDeque<ReadyPiece>,
}

/// A piece of a stream with what it is about.
pub(super) struct ReadyPiece {
    pub(super) piece: Piece,
    pub(super) found: TimedEvents,
    pub(super) rendered: Option<RenderedEvents>,
    pub(super) packet: Arc<Packet>,
}

impl DecodeThreads {
    /// Whether these traces are so large that decoding them ahead takes less time.
    #[must_use]
    pub fn are_faster(traces: &[TraceDirectory]) -> bool {
        let streams = || traces.iter().flat_map(|trace| &trace.streams);
        // A single stream is decoded by one thread at a time, and with many streams the memory that goes from thread to
        // thread costs more than it gains: measured with 64.
        (2..=16).contains(&streams().count())
            && streams().map(StreamFiles::bytes).sum::<u64>() >= MIN_BYTES
    }

    /// Whether there is enough memory to decode these traces ahead: that of three packets of each stream.
    #[must_use]
    pub fn have_room(traces: &[TraceDirectory]) -> bool {
        let streams = || traces.iter().flat_map(|trace| &trace.streams);
        let packets: u64 = streams().map(StreamFiles::max_packet_bytes).sum();
        let is_small =
            |bytes: u64| usize::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_MEMORY_BYTES);
        streams().count() <= MAX_STREAMS && is_small(packets.saturating_mul(3))
    }

    /// Starts `count` threads, each with a renderer if there are as many, for this number of streams.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(
        count: usize,
        streams: usize,
        mut renderers: Vec<Box<dyn Renderer>>,
    ) -> io::Result<Self> {
        let (jobs, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let max_bytes = BATCH_BYTES.min(MAX_BATCH_BYTES / 2 / streams.max(1));
        for _ in 0..count {
            let receiver = Arc::clone(&receiver);
            let renderer = renderers.pop();
            let run = move || run(&receiver, renderer, max_bytes);
            thread::Builder::new()
                .name("decode".to_owned())
                .spawn(run)?;
        }
        Ok(Self { jobs })
    }

    pub(super) fn stream(&self, trace: &Arc<SharedTrace>) -> Ahead {
        Ahead {
            jobs: self.jobs.clone(),
            trace: Arc::clone(trace),
            batch: None,
        }
    }
}

impl Ahead {
    /// Lets a thread decode the next batch. If there is no thread left, the stream is returned.
    pub(super) fn begin(
        &mut self,
        decoding: Box<Decoding>,
        buffers: Vec<Buffers>,
    ) -> Option<Box<Decoding>> {
        let (done, batch) = sync_channel(1);
        let job = Job {
            decoding,
            buffers,
            trace: Arc::clone(&self.trace),
            done,
        };
        self.batch = Some(batch);
        self.jobs.send(job).err().map(|failed| failed.0.decoding)
    }

    /// Waits for the batch that was begun last.
    pub(super) fn wait(&mut self) -> Option<Batch> {
        self.batch.take()?.recv().ok()
    }
}

fn run(jobs: &Mutex<Receiver<Job>>, mut renderer: Option<Box<dyn Renderer>>, max_bytes: usize) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let renderer = renderer.as_deref_mut();
        let batch = decode(job.decoding, job.buffers, &job.trace, renderer, max_bytes);
        // The mux has ended, and wants no more.
        let _ = job.done.send(batch);
    }
}

/// Decodes until the batch has its size, or nothing can be decoded here.
fn decode(
    mut decoding: Box<Decoding>,
    mut buffers: Vec<Buffers>,
    trace: &SharedTrace,
    mut renderer: Option<&mut (dyn Renderer + 'static)>,
    max_bytes: usize,
) -> Batch {
    let declared = trace.metadata.trace();
    let (mut pieces, mut bytes) = (VecDeque::new(), 0);
    while bytes < max_bytes && !decoding.is_stored() && !decoding.has_ended() {
        let Buffers {
            mut found,
            rendered: mut events,
        } = buffers.pop().unwrap_or_default();
        let piece = decoding.next_piece(declared, &mut found);
        let packet = Arc::clone(decoding.packet());
        bytes += size_of::<ReadyPiece>() + found.bytes();
        let mut rendered = None;
        if let Some(renderer) = renderer.as_deref_mut() {
            events.clear();
            let origin = Origin {
                trace: &trace.info,
                stream: decoding.info(),
            };
            for place in 0..found.events.len() {
                let event = found.events.event(declared, &packet.bytes, place);
                let added = event.is_some_and(|event| events.add(renderer, &event, origin));
                if !added {
                    break;
                }
            }
            bytes += events.bytes();
            rendered = Some(events);
        }
        pieces.push_back(ReadyPiece {
            piece,
            found,
            rendered,
            packet,
        });
    }
    Batch { decoding, pieces }
}
