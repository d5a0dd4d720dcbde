//! Reading from a client: when, how much at once, and where lines end.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use memchr::{memchr, memrchr};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio_util::sync::CancellationToken;

use super::beat::{Beat, Listener};
use super::bench::{Bench, Benches};
use super::limits::{
    DRAIN_TIMEOUT, MAX_EMPTY_READS, MAX_REJECTED_LINE_BYTES, MAX_TICKS_PER_READ,
    MAX_UNFINISHED_BYTES, POLL_INTERVAL, POLL_LESS_OFTEN_BYTES, READ_AGAIN_BYTES, READ_BYTES,
    SMALL_READ_BYTES, SMALL_READS_BEFORE_POLLING,
};
use super::watch::watch;

/// What all who read have in common.
#[derive(Debug)]
pub(super) struct Reading {
    beat: Beat,
    benches: Benches,
    longest_line: usize,
    /// Bytes of all lines of which the end has not come.
    unfinished: AtomicUsize,
}

/// The receiving end of one connection.
#[derive(Debug)]
pub(super) struct Inlet<'a> {
    reading: &'a Reading,
    stop: &'a CancellationToken,
    way: Way<'a>,
    /// The beginning of a line.
    tail: Vec<u8>,
    /// The beginning of a line that is too long, while the rest of it is skipped.
    skipped: Option<Vec<u8>>,
    /// When to go by the beat, and when not to.
    small_reads: u32,
    silent_reads: u32,
    last_read: Option<Instant>,
    /// When to give up a client that has more to say although the daemon stops.
    deadline: Option<Instant>,
    has_ended: bool,
}

/// How it is known that there is something to read.
#[derive(Debug)]
enum Way<'a> {
    /// The system says so.
    Waited(AsyncFd<OwnedFd>),
    /// It is tried on every so many beats.
    Beaten(OwnedFd, Listener<'a>, u32),
    /// The connection is lost.
    Lost,
}

/// What has been read.
#[derive(Debug)]
pub(super) struct Received {
    bench: Bench,
    /// Where the complete lines are.
    lines: Range<usize>,
    bytes: usize,
}

type Ready<'a> = AsyncFdReadyGuard<'a, OwnedFd>;

impl Way<'_> {
    /// Waits until there may be something to read, or until `stop`.
    async fn ready(&self, stop: &CancellationToken) -> io::Result<Option<Ready<'_>>> {
        if stop.is_cancelled() {
            return Ok(None);
        }
        match self {
            Self::Waited(socket) => tokio::select! {
                biased;
                ready = socket.readable() => ready.map(Some),
                () = stop.cancelled() => Ok(None),
            },
            Self::Beaten(_, listener, beats) => tokio::select! {
                biased;
                () = listener.beats(*beats) => Ok(None),
                () = stop.cancelled() => Ok(None),
            },
            Self::Lost => Ok(None),
        }
    }

    /// Reads as much as there is room for. If that is more than there was, the system will say when
    /// there is more: what has come since it said so for the last time is not forgotten.
    fn read(&self, input: &mut Vec<u8>, ready: Option<Ready<'_>>) -> Result<usize, Errno> {
        let room = input.capacity() - input.len();
        let read = match self {
            Self::Waited(socket) => rustix::io::read(socket, spare_capacity(input)),
            Self::Beaten(socket, ..) => rustix::io::read(socket, spare_capacity(input)),
            Self::Lost => Ok(0),
        };
        let was_all = match read {
            Ok(bytes) => bytes < room,
            Err(error) => error == Errno::WOULDBLOCK,
        };
        if let (true, Some(mut ready)) = (was_all, ready) {
            ready.clear_ready();
        }
        read
    }
}

impl Reading {
    /// Lines longer than `longest_line` are refused.
    pub(super) fn new(longest_line: usize) -> Self {
        Self {
            beat: Beat::default(),
            benches: Benches::new(longest_line),
            longest_line,
            unfinished: AtomicUsize::new(0),
        }
    }

    /// Beats until it is dropped.
    pub(super) async fn run(&self) -> io::Result<()> {
        self.beat.run().await
    }

    /// What has been read is done with. Others have their turn if it was much.
    pub(super) async fn done(&self, received: Received) {
        let was_much = received.bytes >= SMALL_READ_BYTES;
        self.benches.put_back(received.bench);
        if was_much {
            tokio::task::yield_now().await;
        }
    }
}

impl Received {
    /// Complete lines, and what to check them with.
    pub(super) fn lines(&mut self) -> (&[u8], &mut super::sieve::Sieve) {
        let lines = self.bench.input.get(self.lines.clone());
        (lines.unwrap_or_default(), &mut self.bench.sieve)
    }
}

impl<'a> Inlet<'a> {
    /// Reads from this socket, which does not block, until its end or until `stop`.
    pub(super) fn new(
        socket: OwnedFd,
        reading: &'a Reading,
        stop: &'a CancellationToken,
    ) -> io::Result<Self> {
        Ok(Self {
            reading,
            stop,
            way: waited(socket)?,
            tail: Vec::new(),
            skipped: None,
            small_reads: 0,
            silent_reads: 0,
            last_read: None,
            deadline: None,
            has_ended: false,
        })
    }

    /// The next complete lines, or nothing if the connection has ended. The last line needs no line
    /// feed. When the daemon stops, what the client has sent already is still taken.
    pub(super) async fn receive(&mut self) -> io::Result<Option<Received>> {
        while !self.has_ended {
            let ready = self.way.ready(self.stop).await?;
            let mut bench = self.reading.benches.take();
            bring_tail(&mut self.tail, &mut bench, self.reading);
            let old = bench.input.len();
            bench.input.reserve(READ_BYTES);
            let read = self.way.read(&mut bench.input, ready);
            let is_last = self.is_overdue();
            match read {
                Ok(bytes @ 1..) => {
                    // What has been read must not go down with the connection.
                    self.has_ended = self.heard(bytes).is_err() || is_last;
                    if let Some(received) = self.cut(bench, old, bytes) {
                        return Ok(Some(received));
                    }
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) if !self.stop.is_cancelled() => {
                    self.keep_tail(bench, 0);
                    self.heard_nothing()?;
                }
                Err(Errno::INTR) => self.keep_tail(bench, 0),
                Ok(_) | Err(Errno::WOULDBLOCK) => {
                    self.has_ended = true;
                    return Ok(self.last_line(bench));
                }
                Err(error) => {
                    self.keep_tail(bench, 0);
                    return Err(error.into());
                }
            }
        }
        Ok(None)
    }

    /// Whether the daemon has stopped for so long that the client must not go on.
    fn is_overdue(&mut self) -> bool {
        self.stop.is_cancelled() && {
            let now = Instant::now();
            now > *self.deadline.get_or_insert(now + DRAIN_TIMEOUT)
        }
    }

    fn heard_nothing(&mut self) -> io::Result<()> {
        if let Way::Beaten(_, _, beats) = &mut self.way {
            *beats = (*beats).max(1);
            self.silent_reads += 1;
            if self.silent_reads >= MAX_EMPTY_READS {
                self.go_by_the_system()?;
            }
        }
        Ok(())
    }

    /// Small pieces in quick succession are better taken on the beat; a client that fills what the
    /// system keeps of it within a beat would be held up by that.
    fn heard(&mut self, bytes: usize) -> io::Result<()> {
        self.silent_reads = 0;
        match &mut self.way {
            Way::Waited(_) => {
                let now = Instant::now();
                let since = self.last_read.replace(now).map(|last| now - last);
                let is_quick = since.is_some_and(|since| since < POLL_INTERVAL);
                self.small_reads = match is_quick && bytes < SMALL_READ_BYTES {
                    true => self.small_reads + 1,
                    false => 0,
                };
                if self.small_reads >= SMALL_READS_BEFORE_POLLING {
                    self.go_by_the_beat();
                }
            }
            Way::Beaten(..) if bytes >= READ_BYTES / 2 => self.go_by_the_system()?,
            Way::Beaten(_, _, beats) => {
                *beats = match bytes {
                    READ_AGAIN_BYTES.. => 0,
                    POLL_LESS_OFTEN_BYTES..READ_AGAIN_BYTES => 1,
                    _ => (*beats * 2).clamp(1, MAX_TICKS_PER_READ),
                };
            }
            Way::Lost => {}
        }
        Ok(())
    }

    fn go_by_the_beat(&mut self) {
        self.way = match std::mem::replace(&mut self.way, Way::Lost) {
            // The system says nothing any more of a socket that is taken out.
            Way::Waited(socket) => Way::Beaten(socket.into_inner(), self.reading.beat.listen(), 1),
            other => other,
        };
    }

    fn go_by_the_system(&mut self) -> io::Result<()> {
        self.small_reads = 0;
        self.way = match std::mem::replace(&mut self.way, Way::Lost) {
            Way::Beaten(socket, ..) => waited(socket)?,
            other => other,
        };
        Ok(())
    }

    /// Keeps what comes after the last complete line.
    fn keep_tail(&mut self, mut bench: Bench, from: usize) {
        let length = bench.input.len() - from;
        let reading = self.reading;
        let unfinished = reading.unfinished.fetch_add(length, Ordering::Relaxed) + length;
        if from == 0 && length >= READ_BYTES {
            self.tail = std::mem::take(&mut bench.input);
        } else {
            let rest = bench.input.get(from..).unwrap_or_default();
            self.tail.extend_from_slice(rest);
            if self.tail.is_empty() {
                // Most clients write whole lines.
                self.tail = Vec::new();
            }
        }
        let is_too_much = length > READ_BYTES && unfinished > MAX_UNFINISHED_BYTES;
        if length > reading.longest_line || is_too_much {
            reading.unfinished.fetch_sub(length, Ordering::Relaxed);
            self.tail.truncate(MAX_REJECTED_LINE_BYTES);
            self.tail.shrink_to_fit();
            self.skipped = Some(std::mem::take(&mut self.tail));
        }
        reading.benches.put_back(bench);
    }

    /// Finds the complete lines, if there are any, in what was read.
    fn cut(&mut self, mut bench: Bench, old: usize, bytes: usize) -> Option<Received> {
        let new = bench.input.get(old..).unwrap_or_default();
        let Some(last) = memrchr(b'\n', new) else {
            if self.skipped.is_some() {
                self.reading.benches.put_back(bench);
            } else {
                self.keep_tail(bench, 0);
            }
            return None;
        };
        let end = old + last + 1;
        let begin = match self.skipped.take() {
            // While a line is skipped nothing of it is kept: all is new.
            Some(beginning) => {
                let first = memchr(b'\n', new).unwrap_or(last);
                bench.sieve.refuse_too_long(&beginning);
                old + first + 1
            }
            None => 0,
        };
        let rest = bench.input.get(end..).unwrap_or_default();
        if !rest.is_empty() {
            self.reading
                .unfinished
                .fetch_add(rest.len(), Ordering::Relaxed);
            self.tail.extend_from_slice(rest);
        } else if self.tail.capacity() > 0 {
            self.tail = Vec::new();
        }
        Some(Received {
            bench,
            lines: begin..end,
            bytes,
        })
    }

    fn last_line(&mut self, mut bench: Bench) -> Option<Received> {
        if let Some(beginning) = self.skipped.take() {
            bench.sieve.refuse_too_long(&beginning);
        } else if bench.input.is_empty() {
            self.reading.benches.put_back(bench);
            return None;
        } else {
            bench.input.push(b'\n');
        }
        Some(Received {
            lines: 0..bench.input.len(),
            bytes: 0,
            bench,
        })
    }
}

impl Drop for Inlet<'_> {
    fn drop(&mut self) {
        self.reading
            .unfinished
            .fetch_sub(self.tail.len(), Ordering::Relaxed);
    }
}

fn waited<'a>(socket: OwnedFd) -> io::Result<Way<'a>> {
    watch(socket).map(Way::Waited)
}

/// Puts the beginning of a line where the rest will be read to.
fn bring_tail(tail: &mut Vec<u8>, bench: &mut Bench, reading: &Reading) {
    reading.unfinished.fetch_sub(tail.len(), Ordering::Relaxed);
    // A long one is not copied again and again.
    if tail.len() >= READ_BYTES {
        bench.input = std::mem::take(tail);
    } else {
        bench.input.extend_from_slice(tail);
        tail.clear();
    }
}
