//! A producer of the fleet, which follows the rules of `consumer`.

use relay_proto::Minor;
use relay_proto::chunk::CreateTraceChunk;
use relay_proto::relay::{Refusal, Relay as _};
use relay_proto::resume::{MakeResumable, OpenStream, ResumeSession, SkipPackets};
use tokio_util::sync::CancellationToken;
use wire::{ChunkId, EpochSeconds, SeqNum, StreamId};

use super::*;
use crate::producer::disk_faults::memory_relay::{Connections, opened};
use crate::producer::tests::session;

/// A stream with the number of its next packet. No stream: it is closed.
type Stream = (Option<StreamId>, u64);

/// A producer, with what it remembers when it loses its connections.
pub(super) struct Client {
    fleet: Arc<Fleet>,
    pub(super) number: usize,
    began: Instant,
    /// Time in which a packet of each stream is made.
    pace: Duration,
    /// Second of the creation of the session: another one for each attempt.
    created: u64,
    may_exist: bool,
    /// The relay at which the session was being closed. None: some packets are not acknowledged.
    pub(super) closed_at: Option<Arc<RelayFaults>>,
    /// Whether the connections were lost before the session was closed.
    pub(super) is_end_lost: bool,
}

/// The connections of a producer, with its streams there.
struct Upload {
    to: Connections<Arc<MemoryRelay>>,
    metadata: Stream,
    streams: Vec<Stream>,
}

impl Client {
    pub(super) fn new(fleet: &Arc<Fleet>, number: usize) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            number,
            began: Instant::now(),
            pace: Duration::from_secs(1) + millis(6000),
            created: 0,
            may_exist: false,
            closed_at: None,
            is_end_lost: false,
        }
    }

    fn acknowledged(&self) -> [u64; STREAMS] {
        self.fleet.acknowledged.lock()[self.number]
    }

    /// Number of packets of each stream that were made.
    fn made(&self) -> u64 {
        let made = self.began.elapsed().as_millis() / self.pace.as_millis();
        u64::try_from(made).unwrap().min(PACKETS)
    }

    /// Sends the session to one relay after the other until it is complete.
    pub(super) async fn run(mut self) -> Self {
        for place in (0..RELAYS).cycle().skip(self.number) {
            if let Some((relay, faults)) = self.fleet.relay(place)
                && faults.answers().await
                && self.connect(relay, &faults).await
            {
                break;
            }
            sleep(millis(2000)).await;
        }
        self
    }

    /// Connects to a relay. Returns whether the session is complete.
    async fn connect(&mut self, relay: Arc<MemoryRelay>, faults: &Arc<RelayFaults>) -> bool {
        let ended = CancellationToken::new();
        let mut to = Connections::new(relay, ended.clone());
        let (metadata, streams) = match self.open(&mut to) {
            Ok(Some(streams)) => streams,
            opened => {
                to.end(true, now());
                return opened.is_ok();
            }
        };
        let mut upload = Upload {
            to,
            metadata,
            streams,
        };
        let is_complete = self.upload(&mut upload, faults, &ended).await;
        if is_complete {
            upload.to.end(false, now());
        } else if !faults.is_killed() {
            // What was sent arrives some time later, and then the end of the connections.
            let (number, made, acknowledged) = (self.number, self.made(), self.acknowledged());
            let faults = Arc::clone(faults);
            tokio::spawn(async move {
                sleep(millis(10_000)).await;
                if faults.is_alive().await {
                    let _ = upload.send(number, made, acknowledged);
                    upload.to.end(true, now());
                }
            });
        }
        is_complete
    }

    /// Opens or resumes the session. None: a relay has completed it.
    fn open(
        &mut self,
        to: &mut Connections<Arc<MemoryRelay>>,
    ) -> Result<Option<(Stream, Vec<Stream>)>, Refusal> {
        let mut session = session(&format!("app-{}", self.number));
        let recording = session.recording.as_mut().unwrap();
        recording.id = self.number as u64;
        recording.created = EpochSeconds(self.created);
        let resume = ResumeSession {
            daemon: recording.daemon,
            id: recording.id,
        };
        if !self.may_exist || to.control.resume_session(Minor(15), resume).is_err() {
            if self.closed_at.is_some() {
                // That relay lists the end of the session when it gives the session up.
                self.is_end_lost = true;
                return Ok(None);
            }
            self.may_exist = true;
            self.created += 1;
            to.control.create_session(Minor(15), session)?;
            let timeout = u32::try_from(self.fleet.resume_timeout.as_secs()).unwrap();
            to.control.make_resumable(MakeResumable { timeout })?;
        }
        to.control.create_chunk(CreateTraceChunk {
            chunk: ChunkId(0),
            created: EpochSeconds(0),
            name: None,
        })?;
        let metadata = to.control.open_stream(opened(0, "metadata", 0, 0))?;
        let mut streams = Vec::new();
        for (stream, first) in self.acknowledged().into_iter().enumerate() {
            let size = stream as u64 * 2 * to.packet_bytes();
            streams.push(to.control.open_stream(OpenStream {
                first: SeqNum(first),
                ..opened(stream as u64, &channel(stream), size, 0)
            })?);
        }
        to.control.streams_sent()?;
        to.send_metadata(metadata.0, metadata.1)?;
        Ok(Some((metadata, streams)))
    }

    /// Sends what is made until all is acknowledged, and closes the session. Returns false if the
    /// connections are lost.
    async fn upload(
        &mut self,
        to: &mut Upload,
        faults: &Arc<RelayFaults>,
        ended: &CancellationToken,
    ) -> bool {
        loop {
            sleep(millis(1000)).await;
            let is_cut = Instant::now() < self.fleet.calm_at && one_of(60);
            if is_cut || !faults.answers().await || ended.is_cancelled() {
                return false;
            }
            if to
                .send(self.number, self.made(), self.acknowledged())
                .is_err()
            {
                return false;
            }
            let acknowledged = to.ask(self.acknowledged());
            self.fleet.acknowledged.lock()[self.number] = acknowledged;
            if acknowledged == [PACKETS; STREAMS] {
                self.closed_at = Some(Arc::clone(faults));
                let is_closed = to.to.close_chunk().is_ok();
                return is_closed && !one_of(8) && to.close().is_ok();
            }
        }
    }
}

impl Upload {
    /// Sends the packets that the relay does not have.
    fn send(
        &mut self,
        producer: usize,
        made: u64,
        acknowledged: [u64; STREAMS],
    ) -> Result<(), Refusal> {
        for (number, acknowledged) in acknowledged.into_iter().enumerate() {
            let (Some(stream), next) = &mut self.streams[number] else {
                continue;
            };
            // The producer does not have these any more: another relay has acknowledged them.
            if *next < acknowledged && acknowledged < made {
                self.to.control.skip_packets(SkipPackets {
                    stream: *stream,
                    first: SeqNum(*next),
                    count: acknowledged - *next,
                })?;
                *next = acknowledged;
            }
            while *next < made {
                self.to
                    .send_packet((producer * STREAMS + number, *stream, *next))?;
                *next += 1;
            }
        }
        Ok(())
    }

    /// The packets that are acknowledged, which these were before.
    fn ask(&mut self, mut acknowledged: [u64; STREAMS]) -> [u64; STREAMS] {
        for (known, (stream, next)) in acknowledged.iter_mut().zip(&self.streams) {
            let archived = stream.map_or(Some((0, *next)), |own| self.to.control.position(own));
            *known = archived.map_or(0, |(_, archived)| archived).max(*known);
        }
        acknowledged
    }

    fn close(&mut self) -> Result<(), Refusal> {
        let last = |next: u64| next.checked_sub(1).map(SeqNum);
        let streams = self
            .streams
            .iter()
            .map(|(stream, next)| (*stream, last(*next)));
        let streams: Vec<_> = streams.chain([(self.metadata.0, None)]).collect();
        self.to.close_streams(streams)
    }
}
