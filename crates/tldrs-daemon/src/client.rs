//! One client: handles its commands and events in the order of their arrival.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::forward_queue::{ForwardItem, NotForwarded, TraceForwarder};
use crate::limits::{
    DISK_FULL_RETRY_INTERVAL, MAX_LOGGED_REFUSALS, MAX_PATH_BYTES, MAX_PENDING_EXPORTS,
};
use crate::line::Command;
use crate::line_reader::{LineReader, ReaderContext};
use crate::line_validator::{Findings, LinePart, LineValidator, Lines};
use crate::peer::Peer;
use crate::settings::{Storage, WhenFull};
use crate::trace::{Trace, count_lines};
use crate::traces::{Membership, Traces};

/// The state that the tasks of all clients share.
#[derive(Debug)]
pub(crate) struct ClientContext {
    pub(crate) reader: ReaderContext,
    pub(crate) traces: Arc<Traces>,
    pub(crate) storage: Storage,
    pub(crate) when_full: WhenFull,
    /// The user of the daemon, which alone may ask for exports.
    pub(crate) uid: u32,
    /// Cancelled to stop the daemon.
    pub(crate) stop: CancellationToken,
}

/// A connected client, as its task serves it.
#[derive(Debug)]
struct Client<'a> {
    context: &'a ClientContext,
    peer: &'a Peer,
    /// The traces that the client has opened. They stay open until it disconnects.
    opened: Vec<Membership>,
    target: EventTarget,
    /// Pending exports that the client asked for before it opened a trace.
    pending_exports: Vec<PathBuf>,
    /// Number of lines that were refused.
    refused: u64,
    /// Number of events that were not stored.
    lost: u64,
    /// Number of events of the present trace that were not forwarded, and are not reported as lost
    /// yet.
    not_forwarded: u64,
}

/// The trace that a client's events belong to.
#[derive(Debug, Clone, Copy)]
enum EventTarget {
    /// The client has not opened a trace.
    Unknown,
    /// The trace of this index in [`Client::opened`].
    Opened(usize),
    /// The trace could not be opened: the events are lost.
    Refused,
}

/// The action after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextAction {
    Continue,
    Disconnect,
}

/// Serves a client until it disconnects or the daemon stops.
pub(crate) async fn serve(socket: OwnedFd, peer: Peer, context: Arc<ClientContext>) {
    debug!(%peer, "connected");
    let mut client = Client {
        context: &context,
        peer: &peer,
        opened: Vec::new(),
        target: EventTarget::Unknown,
        pending_exports: Vec::new(),
        refused: 0,
        lost: 0,
        not_forwarded: 0,
    };
    if matches!(context.storage, Storage::File(_)) {
        client.open_unnamed_trace().await;
    }
    if let Err(error) = client.read_until_closed(socket).await {
        warn!(%peer, %error, "connection lost");
    }
    client.disconnect().await;
}

impl Client<'_> {
    async fn read_until_closed(&mut self, socket: OwnedFd) -> std::io::Result<()> {
        let readers = &self.context.reader;
        let mut reader = LineReader::new(socket, readers, &self.context.stop)?;
        loop {
            self.wait_for_capacity().await;
            let Some(mut received) = reader.receive_lines().await? else {
                return Ok(());
            };
            let (lines, validator) = received.lines_and_validator();
            let next = self.handle_lines(lines, validator).await;
            readers.return_lines(received).await;
            if next == NextAction::Disconnect {
                return Ok(());
            }
        }
    }

    /// Waits for capacity in the forward queue before reading, so that a blocked client holds no
    /// read buffer.
    async fn wait_for_capacity(&self) {
        if self.context.when_full == WhenFull::Block
            && let Some(forwarder) = self
                .membership()
                .and_then(|member| member.forwarder.as_ref())
        {
            let wait = forwarder.wait_for_capacity();
            self.context.stop.run_until_cancelled(wait).await;
        }
    }

    async fn handle_lines(&mut self, bytes: &[u8], validator: &mut LineValidator) -> NextAction {
        let mut lines = Lines::new(bytes);
        let mut next = NextAction::Continue;
        while let Some(part) = validator.next_part(&mut lines) {
            match part {
                LinePart::Events { text, lines } => self.store_events(text, lines).await,
                LinePart::Command(command) => next = self.run_command(command).await,
                LinePart::Refused => {}
            }
            // Before the next part: a command may change the trace that the findings belong to.
            if let Some(found) = validator.take_findings() {
                self.report_findings(&found).await;
            }
            if next == NextAction::Disconnect {
                break;
            }
        }
        // Refused lines at the end are not followed by a part.
        if let Some(found) = validator.take_findings() {
            self.report_findings(&found).await;
        }
        next
    }

    async fn run_command(&mut self, command: Command<'_>) -> NextAction {
        let peer = self.peer;
        match command {
            Command::Open(id) => self.open_trace(&id).await,
            // The daemon's own user could write the file itself.
            Command::EmitTef(path) | Command::EmitTefAtExit(path)
                if peer.uid != self.context.uid =>
            {
                let uid = self.context.uid;
                warn!(%peer, path = %path.display(), "not exported: only user {uid}, which runs the daemon, may ask for exports; write the file with `tldrs get-tef`");
            }
            Command::EmitTef(path) => self.queue_export(path),
            Command::EmitTefAtExit(path) => self.add_pending_export(path),
            Command::Die => {
                info!(%peer, "stopping: DIE received");
                self.context.stop.cancel();
                return NextAction::Disconnect;
            }
            Command::DieWhenIdle => {
                info!(%peer, "stopping when no trace is open: DIE_WHEN_IDLE received");
                self.context.traces.stop_when_idle();
            }
        }
        NextAction::Continue
    }

    async fn open_trace(&mut self, id: &str) {
        self.report_unforwarded().await;
        // With one file for all events, every id names the same trace.
        let is_one = matches!(self.context.storage, Storage::File(_));
        let is_it = |member: &Membership| is_one || member.trace.id == id;
        let known = self.opened.iter().position(is_it);
        if let Some(known) = known {
            self.target = EventTarget::Opened(known);
            return;
        }
        match self.context.traces.open(id, self.peer).await {
            Ok(membership) => {
                for path in std::mem::take(&mut self.pending_exports) {
                    add_pending_export(&membership, path, self.peer);
                }
                self.target = EventTarget::Opened(self.opened.len());
                self.opened.push(membership);
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                error!(peer = %self.peer, trace = id, "cannot open the trace: {error:#}; its events are lost");
                self.target = EventTarget::Refused;
            }
        }
    }

    /// Opens the trace for events that arrive before any `OPEN`.
    async fn open_unnamed_trace(&mut self) {
        let id = match self.peer.pid {
            Some(pid) => format!("unnamed-{pid}"),
            None => "unnamed".to_owned(),
        };
        self.open_trace(&id).await;
    }

    fn membership(&self) -> Option<&Membership> {
        match self.target {
            EventTarget::Opened(index) => self.opened.get(index),
            EventTarget::Unknown | EventTarget::Refused => None,
        }
    }

    fn queue_export(&self, path: &Path) {
        let peer = self.peer;
        let Some(membership) = self.membership() else {
            warn!(%peer, path = %path.display(), "not exported: no trace is open");
            return;
        };
        if let Some(path) = self.absolute_path(path)
            && let Err(error) = membership.queue_export(path)
        {
            warn!(%peer, %error, "not exported");
        }
    }

    fn add_pending_export(&mut self, path: &Path) {
        let Some(path) = self.absolute_path(path) else {
            return;
        };
        match (self.membership(), self.target) {
            (Some(membership), _) => add_pending_export(membership, path, self.peer),
            (None, EventTarget::Unknown) if self.pending_exports.len() < MAX_PENDING_EXPORTS => {
                self.pending_exports.push(path)
            }
            (None, _) => {
                warn!(peer = %self.peer, path = %path.display(), "will not be exported: no trace is open");
            }
        }
    }

    /// Resolves a path against the client's working directory.
    fn absolute_path(&self, path: &Path) -> Option<PathBuf> {
        let bytes = path.as_os_str().len();
        if bytes > MAX_PATH_BYTES {
            warn!(peer = %self.peer, bytes, max = MAX_PATH_BYTES, "not exported: the path is too long");
            return None;
        }
        if path.is_absolute() {
            return Some(path.to_owned());
        }
        let directory = self.peer.directory();
        if directory.is_none() {
            warn!(peer = %self.peer, path = %path.display(), "not exported: the working directory of the client is not known");
        }
        directory.map(|directory| directory.join(path))
    }

    async fn store_events(&mut self, text: &[u8], lines: u64) {
        if matches!(self.target, EventTarget::Unknown) {
            self.open_unnamed_trace().await;
        }
        let Some(membership) = self.membership() else {
            self.lost += lines;
            return;
        };
        // Stored before they are forwarded: if the daemon is killed, they are missing at the relay
        // only.
        let lost = append_events(membership, self.context, text, lines).await;
        self.lost += lost;
        self.forward_events(text, lines).await;
    }

    /// Queues events for the forwarder, if the trace is forwarded.
    async fn forward_events(&mut self, text: &[u8], lines: u64) {
        let Some(membership) = self.membership() else {
            return;
        };
        let (client, trace) = (membership.client, Arc::clone(&membership.trace));
        let Some(forwarder) = membership.forwarder.clone() else {
            return;
        };
        // Lost events are reported before the next events, so that the gap is at its place in the
        // trace.
        if self.not_forwarded > 0 && self.send_lost(&forwarder, client).await.is_err()
            || forwarder
                .send_lines(client, text, self.context.when_full)
                .await
                .is_err()
        {
            if forwarder.is_closed() {
                self.stop_forwarding();
            } else {
                self.not_forwarded += lines;
                trace.count_lost(lines);
            }
        }
    }

    fn stop_forwarding(&mut self) {
        if let EventTarget::Opened(index) = self.target
            && let Some(membership) = self.opened.get_mut(index)
        {
            warn!(
                trace = membership.trace.id,
                "the forwarder has ended; the trace is not forwarded any more"
            );
            membership.forwarder = None;
        }
    }

    /// Reports events that were not forwarded, before the client opens another trace. If that fails
    /// too, the record still counts them.
    async fn report_unforwarded(&mut self) {
        let now = self.membership();
        let now = now.and_then(|now| Some((now.forwarder.clone()?, now.client)));
        if let Some((forwarder, client)) = now.filter(|_| self.not_forwarded > 0) {
            let _ = self.send_lost(&forwarder, client).await;
        }
        self.not_forwarded = 0;
    }

    async fn send_lost(
        &mut self,
        forwarder: &TraceForwarder,
        client: u32,
    ) -> Result<(), NotForwarded> {
        let lost = ForwardItem::Lost {
            client,
            count: self.not_forwarded,
            reason: "the relay was too slow".into(),
        };
        forwarder.send_item(lost, self.context.when_full).await?;
        self.not_forwarded = 0;
        Ok(())
    }

    async fn report_findings(&mut self, found: &Findings) {
        if found.refused > 0 && self.refused < MAX_LOGGED_REFUSALS {
            let Findings { reason, begin, .. } = found;
            warn!(peer = %self.peer, lines = found.refused, reason, begin, "refused");
        }
        self.refused += found.refused;
        let Some(membership) = self.membership() else {
            return;
        };
        membership.trace.count_findings(found);
        if let Some(forwarder) = membership.forwarder.as_ref().filter(|_| found.refused > 0) {
            let lost = ForwardItem::Lost {
                client: membership.client,
                count: found.refused,
                reason: found.reason.clone().into(),
            };
            // If the queue is full or closed, the record still counts them.
            let _ = forwarder.send_item(lost, self.context.when_full).await;
        }
    }

    async fn disconnect(mut self) {
        let (peer, refused, lost) = (self.peer, self.refused, self.lost);
        if refused > MAX_LOGGED_REFUSALS {
            warn!(%peer, refused, "lines were refused");
        }
        if lost > 0 {
            error!(%peer, lost, "events were lost");
        }
        self.report_unforwarded().await;
        for membership in &mut self.opened {
            membership.announce_close().await;
        }
        debug!(%peer, "disconnected");
    }
}

fn add_pending_export(membership: &Membership, path: PathBuf, peer: &Peer) {
    debug!(%peer, path = %path.display(), "to be exported when the last client disconnects");
    if let Err(error) = membership.add_pending_export(path, peer) {
        warn!(%peer, %error, "will not be exported");
    }
}

/// Appends events to a trace; when the disk is full, waits or drops them as the policy says.
/// Returns the number of lost events.
async fn append_events(
    membership: &Membership,
    context: &ClientContext,
    text: &[u8],
    lines: u64,
) -> u64 {
    let trace = &membership.trace;
    let mut rest = text;
    let mut left = lines;
    let mut has_waited = false;
    // Waits in this task, so that nothing more is read from this client and it is blocked
    // (backpressure).
    while let Err(error) = trace.append_events(rest, left) {
        rest = rest.get(error.stored..).unwrap_or_default();
        left = count_lines(rest);
        let is_full = [Errno::NOSPC, Errno::DQUOT]
            .map(|full| Some(full.raw_os_error()))
            .contains(&error.source.raw_os_error());
        if !has_waited {
            error!(trace = trace.id, error = %error.source, policy = %context.when_full, "cannot append");
        }
        if !is_full || context.when_full == WhenFull::DropNewest || context.stop.is_cancelled() {
            trace.count_lost(left);
            return left;
        }
        has_waited = true;
        tokio::time::sleep(DISK_FULL_RETRY_INTERVAL).await;
    }
    if has_waited {
        info!(trace = trace.id, "appending again");
    }
    if trace.should_sync() {
        sync_events(trace).await;
    }
    0
}

async fn sync_events(trace: &Arc<Trace>) {
    // A sync takes as long as the disk does: not on a thread that serves other clients.
    let file = Arc::clone(trace);
    let synced = tokio::task::spawn_blocking(move || file.sync_events()).await;
    if let Ok(Err(error)) = synced {
        error!(trace = trace.id, %error, "cannot sync the trace to the disk");
    }
}
