//! Reading lines from a client's socket, event-driven or polled.
//!
//! Decides when to read, how much at once, and where lines end.

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

use crate::limits::{
    DRAIN_TIMEOUT, MAX_EMPTY_READS, MAX_REJECTED_LINE_BYTES, MAX_TICKS_PER_READ,
    MAX_UNFINISHED_BYTES, POLL_INTERVAL, POLL_LESS_OFTEN_BYTES, READ_AGAIN_BYTES, READ_BYTES,
    SMALL_READ_BYTES, SMALL_READS_BEFORE_POLLING,
};
use crate::line_validator::LineValidator;
use crate::poll_timer::{PollTimer, TickSubscription};
use crate::read_buffer::{ReadBuffer, ReadBufferPool};
use crate::watch::watch_readable;

/// The state that the readers of all clients share: the poll timer, the buffers, and a limit.
#[derive(Debug)]
pub(crate) struct ReaderContext {
    poll_timer: PollTimer,
    buffers: ReadBufferPool,
    max_line_bytes: usize,
    /// Bytes of the unfinished lines of all clients.
    unfinished_bytes: AtomicUsize,
}

/// The reader of one client's socket.
#[derive(Debug)]
pub(crate) struct LineReader<'a> {
    context: &'a ReaderContext,
    stop: &'a CancellationToken,
    mode: ReadMode<'a>,
    /// The beginning of a line.
    tail: Vec<u8>,
    /// The beginning of a line that is too long, while the rest of it is skipped.
    skipped: Option<Vec<u8>>,
    /// Small reads in a row, by which reading becomes polled.
    small_reads: u32,
    /// Reads in a row that brought nothing, by which it becomes event-driven again.
    empty_reads: u32,
    last_read: Option<Instant>,
    /// When reading ends after the daemon begins to stop, even if the client keeps sending.
    deadline: Option<Instant>,
    has_ended: bool,
}

/// How the reader learns that the socket can be read.
#[derive(Debug)]
enum ReadMode<'a> {
    /// The runtime wakes it when the socket is readable.
    EventDriven(AsyncFd<OwnedFd>),
    /// The reader tries to read after this number of ticks of the poll timer.
    Polled(OwnedFd, TickSubscription<'a>, u32),
    /// The socket is closed.
    Lost,
}

/// The result of one read: a buffer with complete lines in it.
#[derive(Debug)]
pub(crate) struct ReceivedLines {
    buffer: ReadBuffer,
    /// Where in the buffer the complete lines are.
    lines: Range<usize>,
}

type Ready<'a> = AsyncFdReadyGuard<'a, OwnedFd>;

impl ReadMode<'_> {
    /// Waits until there may be something to read, or until `stop`.
    async fn wait_ready(&self, stop: &CancellationToken) -> io::Result<Option<Ready<'_>>> {
        // Then the socket is read without waiting, until it is empty.
        if stop.is_cancelled() {
            return Ok(None);
        }
        match self {
            Self::EventDriven(socket) => tokio::select! {
                biased;
                ready = socket.readable() => ready.map(Some),
                () = stop.cancelled() => Ok(None),
            },
            Self::Polled(_, subscription, ticks) => tokio::select! {
                biased;
                () = subscription.wait_ticks(*ticks) => Ok(None),
                () = stop.cancelled() => Ok(None),
            },
            Self::Lost => Ok(None),
        }
    }

    /// Reads as much as the buffer has capacity for. The readiness is cleared only by a read that
    /// has emptied the socket: otherwise the reader would wait for an event although bytes are
    /// left.
    fn read_available(
        &self,
        input: &mut Vec<u8>,
        ready: Option<Ready<'_>>,
    ) -> Result<usize, Errno> {
        let room = input.capacity() - input.len();
        let read = match self {
            Self::EventDriven(socket) => rustix::io::read(socket, spare_capacity(input)),
            Self::Polled(socket, ..) => rustix::io::read(socket, spare_capacity(input)),
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

impl ReaderContext {
    /// Lines longer than `max_line_bytes` are refused.
    pub(crate) fn new(max_line_bytes: usize) -> Self {
        Self {
            poll_timer: PollTimer::default(),
            buffers: ReadBufferPool::new(max_line_bytes),
            max_line_bytes,
            unfinished_bytes: AtomicUsize::new(0),
        }
    }

    /// Runs the poll timer until the future is dropped.
    pub(crate) async fn run_poll_timer(&self) -> io::Result<()> {
        self.poll_timer.run().await
    }

    /// Returns a buffer to the pool when its lines are handled. Yields to other tasks after many
    /// reads: to yield after each would wake another thread of the runtime each time.
    pub(crate) async fn return_lines(&self, received: ReceivedLines) {
        self.buffers.return_buffer(received.buffer);
        tokio::task::coop::consume_budget().await;
    }
}

impl ReceivedLines {
    /// Returns the complete lines, and the validator to check them with.
    pub(crate) fn lines_and_validator(&mut self) -> (&[u8], &mut LineValidator) {
        let lines = self.buffer.input.get(self.lines.clone());
        (lines.unwrap_or_default(), &mut self.buffer.validator)
    }
}

impl<'a> LineReader<'a> {
    /// Reads from this socket, which does not block, until its end or until `stop`.
    pub(crate) fn new(
        socket: OwnedFd,
        context: &'a ReaderContext,
        stop: &'a CancellationToken,
    ) -> io::Result<Self> {
        Ok(Self {
            context,
            stop,
            mode: event_driven(socket)?,
            tail: Vec::new(),
            skipped: None,
            small_reads: 0,
            empty_reads: 0,
            last_read: None,
            deadline: None,
            has_ended: false,
        })
    }

    /// Receives the next complete lines, or nothing if the connection has ended. The last line
    /// needs no line feed. When the daemon stops, what the client has sent already is still
    /// received.
    pub(crate) async fn receive_lines(&mut self) -> io::Result<Option<ReceivedLines>> {
        while !self.has_ended {
            let ready = self.mode.wait_ready(self.stop).await?;
            let mut buffer = self.context.buffers.take_buffer();
            move_tail_to_buffer(&mut self.tail, &mut buffer, self.context);
            let old = buffer.input.len();
            buffer.input.reserve(READ_BYTES);
            let read = self.mode.read_available(&mut buffer.input, ready);
            let is_last = self.is_past_deadline();
            match read {
                Ok(bytes @ 1..) => {
                    // What has been read must not be lost if changing the mode fails.
                    self.has_ended = self.adapt_mode(bytes).is_err() || is_last;
                    if let Some(received) = self.split_lines(buffer, old) {
                        return Ok(Some(received));
                    }
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) if !self.stop.is_cancelled() => {
                    self.keep_tail(buffer, 0);
                    self.handle_empty_read()?;
                }
                Err(Errno::INTR) => self.keep_tail(buffer, 0),
                Ok(_) | Err(Errno::WOULDBLOCK) => {
                    self.has_ended = true;
                    return Ok(self.take_last_line(buffer));
                }
                Err(error) => {
                    self.keep_tail(buffer, 0);
                    return Err(error.into());
                }
            }
        }
        Ok(None)
    }

    /// Whether the daemon began to stop more than [`DRAIN_TIMEOUT`] ago.
    fn is_past_deadline(&mut self) -> bool {
        self.stop.is_cancelled() && {
            let now = Instant::now();
            now > *self.deadline.get_or_insert(now + DRAIN_TIMEOUT)
        }
    }

    fn handle_empty_read(&mut self) -> io::Result<()> {
        if let ReadMode::Polled(_, _, ticks) = &mut self.mode {
            // With 0 ticks the next read would follow at once (busy loop).
            *ticks = (*ticks).max(1);
            self.empty_reads += 1;
            if self.empty_reads >= MAX_EMPTY_READS {
                self.switch_to_events()?;
            }
        }
        Ok(())
    }

    /// Chooses the mode. Polling costs fewer wake-ups for small pieces in quick succession, but it
    /// would block a client that fills its socket buffer within a tick.
    fn adapt_mode(&mut self, bytes: usize) -> io::Result<()> {
        self.empty_reads = 0;
        match &mut self.mode {
            ReadMode::EventDriven(_) => {
                let now = Instant::now();
                let since = self.last_read.replace(now).map(|last| now - last);
                let is_quick = since.is_some_and(|since| since < POLL_INTERVAL);
                self.small_reads = match is_quick && bytes < SMALL_READ_BYTES {
                    true => self.small_reads + 1,
                    false => 0,
                };
                if self.small_reads >= SMALL_READS_BEFORE_POLLING {
                    self.switch_to_polling();
                }
            }
            ReadMode::Polled(..) if bytes >= READ_BYTES / 2 => self.switch_to_events()?,
            ReadMode::Polled(_, _, ticks) => {
                *ticks = match bytes {
                    READ_AGAIN_BYTES.. => 0,
                    POLL_LESS_OFTEN_BYTES..READ_AGAIN_BYTES => 1,
                    _ => (*ticks * 2).clamp(1, MAX_TICKS_PER_READ),
                };
            }
            ReadMode::Lost => {}
        }
        Ok(())
    }

    fn switch_to_polling(&mut self) {
        self.mode = match std::mem::replace(&mut self.mode, ReadMode::Lost) {
            // `into_inner` takes the socket out of the runtime's epoll: no more wake-ups.
            ReadMode::EventDriven(socket) => {
                ReadMode::Polled(socket.into_inner(), self.context.poll_timer.subscribe(), 1)
            }
            other => other,
        };
    }

    fn switch_to_events(&mut self) -> io::Result<()> {
        self.small_reads = 0;
        self.mode = match std::mem::replace(&mut self.mode, ReadMode::Lost) {
            ReadMode::Polled(socket, ..) => event_driven(socket)?,
            other => other,
        };
        Ok(())
    }

    /// Keeps what follows the last complete line until the next read.
    fn keep_tail(&mut self, mut buffer: ReadBuffer, from: usize) {
        let length = buffer.input.len() - from;
        let context = self.context;
        let unfinished = context
            .unfinished_bytes
            .fetch_add(length, Ordering::Relaxed)
            + length;
        if from == 0 && length >= READ_BYTES {
            self.tail = std::mem::take(&mut buffer.input);
        } else {
            let rest = buffer.input.get(from..).unwrap_or_default();
            self.tail.extend_from_slice(rest);
            if self.tail.is_empty() {
                // Releases the memory: most clients write whole lines and need no tail.
                self.tail = Vec::new();
            }
        }
        // Lines of up to one read are always kept: a long line of one client refuses no short line
        // of another.
        let is_too_much = length > READ_BYTES && unfinished > MAX_UNFINISHED_BYTES;
        if length > context.max_line_bytes || is_too_much {
            context
                .unfinished_bytes
                .fetch_sub(length, Ordering::Relaxed);
            self.tail.truncate(MAX_REJECTED_LINE_BYTES);
            self.tail.shrink_to_fit();
            self.skipped = Some(std::mem::take(&mut self.tail));
        }
        context.buffers.return_buffer(buffer);
    }

    /// Splits the bytes that were read into complete lines and the tail. Returns none without a
    /// complete line.
    fn split_lines(&mut self, mut buffer: ReadBuffer, old: usize) -> Option<ReceivedLines> {
        let new = buffer.input.get(old..).unwrap_or_default();
        let Some(last) = memrchr(b'\n', new) else {
            if self.skipped.is_some() {
                self.context.buffers.return_buffer(buffer);
            } else {
                self.keep_tail(buffer, 0);
            }
            return None;
        };
        let end = old + last + 1;
        let begin = match self.skipped.take() {
            // While a line is skipped nothing of it is kept: all bytes in the buffer are new.
            Some(beginning) => {
                let first = memchr(b'\n', new).unwrap_or(last);
                buffer.validator.refuse_too_long(&beginning);
                old + first + 1
            }
            None => 0,
        };
        let rest = buffer.input.get(end..).unwrap_or_default();
        if !rest.is_empty() {
            self.context
                .unfinished_bytes
                .fetch_add(rest.len(), Ordering::Relaxed);
            self.tail.extend_from_slice(rest);
        } else if self.tail.capacity() > 0 {
            self.tail = Vec::new();
        }
        Some(ReceivedLines {
            buffer,
            lines: begin..end,
        })
    }

    fn take_last_line(&mut self, mut buffer: ReadBuffer) -> Option<ReceivedLines> {
        if let Some(beginning) = self.skipped.take() {
            buffer.validator.refuse_too_long(&beginning);
        } else if buffer.input.is_empty() {
            self.context.buffers.return_buffer(buffer);
            return None;
        } else {
            buffer.input.push(b'\n');
        }
        Some(ReceivedLines {
            lines: 0..buffer.input.len(),
            buffer,
        })
    }
}

impl Drop for LineReader<'_> {
    fn drop(&mut self) {
        self.context
            .unfinished_bytes
            .fetch_sub(self.tail.len(), Ordering::Relaxed);
    }
}

fn event_driven<'a>(socket: OwnedFd) -> io::Result<ReadMode<'a>> {
    watch_readable(socket).map(ReadMode::EventDriven)
}

/// Moves the beginning of a line into the buffer that its rest will be read to.
fn move_tail_to_buffer(tail: &mut Vec<u8>, buffer: &mut ReadBuffer, context: &ReaderContext) {
    context
        .unfinished_bytes
        .fetch_sub(tail.len(), Ordering::Relaxed);
    // A long tail is moved: copying it at each read would cost quadratic time.
    if tail.len() >= READ_BYTES {
        buffer.input = std::mem::take(tail);
    } else {
        buffer.input.extend_from_slice(tail);
        tail.clear();
    }
}
