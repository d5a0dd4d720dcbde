//! One session's task: connects to a relay, runs the upload, and when the connection is lost, goes
//! on at the next relay, with backoff when all have been tried.

mod attempts;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use relay_proto::session::DaemonId;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::attempts::Attempts;
use super::connection::Connection;
use super::creation_times::CreationTimes;
use super::error::{Consequence, UplinkError};
use super::handshake::{HandshakeParameters, Opened, OpenedOnRelay, open_relay_session};
use super::relay_selector::{RelaySelector, SelectedRelay};
use super::reported_failures::ReportedFailures;
use super::session_state::SessionState;
use super::target::RelayTarget;
use super::upload::SessionUpload;
use crate::limits::{
    MAX_HOST_BYTES, MAX_NAME_BYTES, MAX_PATH_BYTES, MIN_RECONNECT_DELAY, REPLY_TIMEOUT,
    RESUME_TIMEOUT_IN_MEMORY, STABLE_CONNECTION_TIME,
};
use crate::queue::{
    OpenedSession, QueuedStep, SessionDescription, SessionEnd, SessionIdentity, SessionOutcome,
    SessionReceiver, Step,
};
use crate::status::{ConnectionState, SessionCounters, StatusRegistry};

/// Steps that are taken from the queue before the connection is served again.
const MAX_STEPS_PER_TURN: usize = 1024;

/// Creation times that are tried, one second after the other, before the session waits as after a
/// failure.
const MAX_CREATION_TIMES: u32 = 64;

/// The state that the tasks of all sessions share.
#[derive(Debug)]
pub(super) struct UplinkContext {
    pub(super) target: RelayTarget,
    pub(super) reconnect_timeout: Option<Duration>,
    pub(super) creation_times: CreationTimes,
    pub(super) registry: StatusRegistry,
    /// Whether the log says that no relay can be reached, and not yet that one was.
    pub(super) is_missed: AtomicBool,
}

/// The task of one session.
pub(super) struct SessionTask {
    description: SessionDescription,
    identity: SessionIdentity,
    context: Arc<UplinkContext>,
    counters: Arc<SessionCounters>,
    steps: SessionReceiver,
    /// Steps that were received from the queue and are not handled yet.
    backlog: VecDeque<QueuedStep>,
    /// Whether the queue has ended: no step follows those in the backlog.
    is_last: bool,
    state: SessionState,
    /// Number of sessions that relays have opened for this task. A connection that resumes one
    /// opens none.
    opened: u64,
    /// Whether a relay may have a session of this task that can be resumed.
    may_exist: bool,
    /// Number of connections on which the session was opened or resumed.
    connections: u64,
    selector: RelaySelector,
    /// The relay that is connected to, or was last. Absent at first, and after a failed lookup.
    relay: Option<SelectedRelay>,
    /// The address of the relay that had the session last.
    last_address: Option<SocketAddr>,
    /// Failures since the last connection that the log has.
    reported: ReportedFailures,
    /// Whether a relay has confirmed all packets, and only the closing is left.
    is_all_confirmed: bool,
    give_up: CancellationToken,
}

/// Why a session's task does not reconnect any more.
enum StopReason {
    /// The agent stops, or the reconnect timeout has expired; with the reason.
    GivenUp(String),
    /// The failure would be the same with the next connection.
    Failed(UplinkError),
}

impl SessionTask {
    pub(super) fn new(
        session: OpenedSession,
        context: Arc<UplinkContext>,
        give_up: CancellationToken,
    ) -> Self {
        let OpenedSession {
            description,
            identity,
            steps,
        } = session;
        let counters = context
            .registry
            .add_session(&description.name, &description.host);
        let mut state = SessionState::new(Arc::clone(&counters));
        // An earlier process may have sent it to any of them.
        state.has_moved = identity.is_recovered && context.target.relays.len() > 1;
        Self {
            selector: RelaySelector::new(&context.target),
            relay: None,
            last_address: None,
            state,
            description,
            identity,
            context,
            counters,
            steps,
            backlog: VecDeque::new(),
            is_last: false,
            opened: 0,
            may_exist: identity.is_recovered,
            connections: 0,
            reported: ReportedFailures::default(),
            is_all_confirmed: false,
            give_up,
        }
    }

    pub(super) async fn run(mut self) {
        let end = match self.run_with_reconnects().await {
            Ok(()) => SessionEnd::Complete,
            Err(StopReason::GivenUp(why)) if self.steps.is_spooled() => SessionEnd::Spooled(why),
            Err(StopReason::GivenUp(why)) => SessionEnd::Failed(why),
            Err(StopReason::Failed(error)) => SessionEnd::Failed(error.to_string()),
        };
        // Packets that are still in the queue are lost as well.
        while self.take_step() {}
        let unsent = self.backlog.iter().filter(|queued| is_packet(queued));
        // Packets in the backlog are not in the state yet, so no packet counts twice.
        let left = self.state.unconfirmed() + unsent.count() as u64;
        let is_kept = matches!(end, SessionEnd::Spooled(_));
        if !is_kept {
            self.counters.lost.add(left);
        }
        let outcome = SessionOutcome {
            acknowledged: self.counters.acknowledged.get(),
            lost: self.counters.lost.get(),
            end,
        };
        // A command that waits for its session ends with the reason itself.
        if let SessionEnd::Failed(why) = &outcome.end
            && self.context.reconnect_timeout.is_none()
        {
            warn!(
                session = %self.description.name,
                acknowledged = outcome.acknowledged,
                lost = outcome.lost,
                "session given up: {why}"
            );
        }
        self.context.registry.end_session(&self.counters);
        self.steps.report_outcome(outcome);
    }

    async fn run_with_reconnects(&mut self) -> Result<(), StopReason> {
        self.check_names().map_err(StopReason::Failed)?;
        if self.steps.is_spooled() {
            let give_up = self.give_up.clone();
            let received = give_up.run_until_cancelled(self.receive_first()).await;
            received.ok_or_else(|| stop_reason(None))?;
        }
        let mut attempts = Attempts::default();
        let mut failure = None;
        loop {
            let selected = self.next_relay(failure, &mut attempts).await?;
            let began = Instant::now();
            let before = self.counters.acknowledged.get();
            let give_up = self.give_up.clone();
            let error = match give_up.run_until_cancelled(self.try_relay(selected)).await {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => error,
                None => return Err(stop_reason(None)),
            };
            // A user who waits for the session has to change options; an agent may get new
            // certificates.
            let is_awaited = self.context.reconnect_timeout.is_some() && self.opened == 0;
            let is_final = error.consequence() == Consequence::GiveUp
                || is_awaited && error.is_refused_by_tls();
            if is_final && !error.is_of_one_relay() {
                return Err(StopReason::Failed(error));
            }
            attempts.is_refused_by_all &= is_final;
            // Only a connection that has got as far as its session sets this state, and nothing has
            // changed it since that connection was lost.
            let connected = matches!(
                self.counters.connection_state(),
                ConnectionState::Connected { .. }
            );
            // A session that can be resumed would stay open on the relay.
            if self.is_all_confirmed && !self.may_exist {
                warn!(session = %self.description.name, "connection lost while the session was being closed: {error}; the relay has all packets");
                return Ok(());
            }
            if connected {
                attempts.last_good = Instant::now();
                // A relay that accepts connections and closes them at once does not reset the
                // backoff.
                let has_progress = self.counters.acknowledged.get() > before;
                let lasted = began.elapsed();
                if has_progress || lasted >= STABLE_CONNECTION_TIME {
                    attempts.backoff.reset();
                }
                // Two relays that close each connection after the first packet must not be tried in
                // turns without a pause.
                if has_progress && lasted >= MIN_RECONNECT_DELAY || lasted >= STABLE_CONNECTION_TIME
                {
                    self.selector.restart();
                }
            }
            failure = Some(error);
        }
    }

    /// Runs a connection to the relay that has been selected.
    async fn try_relay(
        &mut self,
        selected: Result<SelectedRelay, UplinkError>,
    ) -> Result<(), UplinkError> {
        self.relay = selected.as_ref().ok().cloned();
        self.run_connection(selected?).await
    }

    /// Receives the first steps of a session in the spool: of a new session one, of a session that
    /// an earlier process has begun all up to the first packet; if there is none, a relay has
    /// everything, and may have closed the session.
    ///
    /// A new session must be in the spool before a relay opens it: if this process died between,
    /// nobody would close it there.
    async fn receive_first(&mut self) {
        if !self.identity.is_recovered {
            let step = self.steps.next_step().await;
            return self.add_to_backlog(step);
        }
        let is_about_packets =
            |queued: &QueuedStep| matches!(queued.step, Step::Packet { .. } | Step::Gap { .. });
        while !self.is_last && !self.backlog.back().is_some_and(is_about_packets) {
            let step = self.steps.next_step().await;
            self.add_to_backlog(step);
        }
        self.is_all_confirmed = self.is_last;
    }

    /// Runs one connection from its handshake to its end, and resends what no relay has confirmed.
    async fn run_connection(&mut self, relay: SelectedRelay) -> Result<(), UplinkError> {
        let mut attempts = MAX_CREATION_TIMES;
        let (mut pair, opened) = loop {
            attempts -= 1;
            let may_exist = self.may_exist;
            match self.open_connection(&relay).await {
                Err(UplinkError::DirectoryInUse { .. }) if attempts > 0 => {
                    // The relay has refused this attempt, so that it leaves no session there to be
                    // resumed. The next attempt has a later second.
                    self.may_exist = may_exist;
                }
                opened => break opened?,
            }
        };
        let last_address = self.last_address.replace(relay.address);
        let has_moved = last_address.is_some_and(|last| last != relay.address);
        self.state.has_moved |= has_moved;
        let session = &self.description.name;
        let Some((opened, path, how)) = opened else {
            if has_moved {
                warn!(%session, %relay, "complete: another relay has all packets of the session, but its end was lost");
            } else {
                info!(%session, %relay, "complete: the relay has closed the session");
            }
            return Ok(());
        };
        if !opened.is_resumable && pair.remove_deadline() {
            warn!(%session, %relay, "the relay cannot be told that packets will not come: all are sent, however late they are");
        }
        self.report_connected(&relay, &path, how, has_moved);
        self.connections += 1;
        self.opened += u64::from(how != Opened::Resumed);
        self.may_exist = opened.is_resumable;
        self.counters
            .set_connection_state(ConnectionState::Connected {
                path: path.to_string(),
                relay: relay.to_string(),
                since: now_as_text(),
            });
        let mut upload = SessionUpload::begin(opened, &mut self.state)?;
        self.run_upload(&mut pair, &mut upload).await?;
        pair.close().await;
        info!(
            session = %self.description.name,
            %relay,
            packets = self.counters.acknowledged.get(),
            path = %upload.path.as_ref().unwrap_or(&path),
            "complete"
        );
        Ok(())
    }

    /// Connects to a relay, and opens or resumes the session.
    async fn open_connection(
        &mut self,
        relay: &SelectedRelay,
    ) -> Result<(Connection, Option<OpenedOnRelay>), UplinkError> {
        let target = &self.context.target;
        let mut pair = Connection::connect(target, relay).await?;
        let base_path = self.base_path();
        let parameters = HandshakeParameters {
            description: &self.description,
            base_path: &base_path,
            daemon: DaemonId(self.identity.producer),
            id: self.identity.id,
            has_been_opened: self.opened > 0,
            may_exist: self.may_exist,
            is_all_confirmed: self.is_all_confirmed,
            // The next process of this host resumes a spooled session, whenever it starts.
            resume_timeout: if self.steps.is_spooled() {
                Duration::MAX
            } else {
                RESUME_TIMEOUT_IN_MEMORY
            },
            created: self.context.creation_times.next_creation_time(
                &self.description.host,
                &self.description.name,
                epoch_seconds(),
            ),
        };
        // If the connection is lost during the handshake, the relay may have opened the session.
        self.may_exist = true;
        let opened = open_relay_session(&mut pair, parameters).await?;
        Ok((pair, opened))
    }

    async fn run_upload(
        &mut self,
        pair: &mut Connection,
        upload: &mut SessionUpload,
    ) -> Result<(), UplinkError> {
        let mut last_reply = Instant::now();
        let (mut acknowledged, mut had_queued) = (None, false);
        loop {
            let now = Instant::now();
            // Also when the connection is new, and when nothing was queued before: the relay has
            // had no time to acknowledge anything.
            let count = Some(self.counters.acknowledged.get());
            if acknowledged != count || !had_queued {
                self.counters.record_progress(now);
            }
            acknowledged = count;
            had_queued = self.counters.queued_packets.get() > 0;
            let was_awaiting = upload.is_awaiting();
            for _ in 0..MAX_STEPS_PER_TURN {
                if !self.take_step() {
                    break;
                }
            }
            upload.advance(&mut self.state, &mut self.backlog, self.is_last, now)?;
            // The closing begins only when the relay has confirmed everything. If the connection is
            // lost from here on, nothing is sent again.
            self.is_all_confirmed |= upload.closing_progress.has_begun();
            if upload.closing_progress.is_done() {
                return Ok(());
            }
            let has_written = pair.write(&mut upload.out)?;
            upload.abandon_packets(&pair.take_abandoned(), &mut self.state)?;
            let has_read = pair.read()?;
            // The timeout of a reply counts from the reply before it, or from the first command in
            // flight.
            if has_read || !was_awaiting {
                last_reply = now;
            }
            let state = &mut self.state;
            let has_replies =
                pair.parse_replies(|input| upload.receive_replies(input, state, now))?;
            if has_written || has_replies {
                // Yields to other sessions now and then, even if the socket is always ready.
                tokio::task::consume_budget().await;
                continue;
            }
            let reply_deadline = last_reply + REPLY_TIMEOUT;
            if let Some(command) = upload.next_answered()
                && now >= reply_deadline
            {
                let within = REPLY_TIMEOUT;
                return Err(UplinkError::ReplyTimeout { command, within });
            }
            // Without a command in flight, a silent relay is no fault.
            let reply_deadline = upload.is_awaiting().then_some(reply_deadline);
            let late = pair.next_late(&upload.out);
            let wake = upload.wake().into_iter().chain(reply_deadline).chain(late);
            let wake = wake.min();
            tokio::select! {
                step = self.steps.next_step(), if !self.is_last => self.add_to_backlog(step),
                ready = pair.wait_ready(&mut upload.out) => ready?,
                () = until(wake) => {}
            }
        }
    }

    /// Moves a step from the queue to the backlog, if one is queued. Returns whether there was one.
    fn take_step(&mut self) -> bool {
        let step = self.steps.try_next_step();
        let is_some = step.is_some();
        // An empty queue is not the end of the queue, so none is not added.
        if is_some {
            self.add_to_backlog(step);
        }
        is_some
    }

    fn add_to_backlog(&mut self, step: Option<QueuedStep>) {
        let Some(queued) = step else {
            self.is_last = true;
            return;
        };
        if let Step::Packet { bytes, .. } = &queued.step {
            self.counters.queued_packets.add(1);
            self.counters.queued_bytes.add(bytes.len() as u64);
        }
        self.backlog.push_back(queued);
    }

    /// Returns the base path for the next session on the relay. A path that the user has chosen has
    /// no date in it, unlike the default: from the second session on a number is appended, or that
    /// session would overwrite the first.
    fn base_path(&self) -> String {
        let given = &self.description.base_path;
        let chosen = if given.is_empty() {
            &self.context.target.base_path
        } else {
            given
        };
        match self.opened + u64::from(self.identity.is_recovered) {
            0 => chosen.clone(),
            _ if chosen.is_empty() => String::new(),
            before => format!("{chosen}-{}", before + 1),
        }
    }

    /// Checks the names: relays refuse some, and crash with others.
    fn check_names(&self) -> Result<(), UplinkError> {
        let SessionDescription { name, host, .. } = &self.description;
        let is_name = |name: &str, max| {
            !name.is_empty()
                && !name.starts_with('.')
                && !name.contains(['/', '\0'])
                && name.len() <= max
        };
        let path = self.base_path();
        for (what, name, is_good) in [
            ("session", name, is_name(name, MAX_NAME_BYTES)),
            ("host", host, is_name(host, MAX_HOST_BYTES)),
            (
                "path",
                &path,
                host.len() + path.len() <= MAX_PATH_BYTES
                    && !path.starts_with('/')
                    && !path.contains('\0')
                    && path.split('/').all(|part| part != ".."),
            ),
        ] {
            if !is_good {
                let name = name.clone();
                return Err(UplinkError::Name { what, name });
            }
        }
        Ok(())
    }
}

fn is_packet(queued: &QueuedStep) -> bool {
    matches!(queued.step, Step::Packet { .. })
}

fn stop_reason(error: Option<&UplinkError>) -> StopReason {
    StopReason::GivenUp(match error {
        Some(error) => format!("stopped before it had reconnected: {error}"),
        None => "stopped before the relay had confirmed everything".to_owned(),
    })
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the present second in UTC, as RFC 3339 writes it.
fn now_as_text() -> String {
    let now = Timestamp::now();
    let second = Timestamp::from_second(now.as_second());
    second.unwrap_or(now).to_string()
}

fn epoch_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
