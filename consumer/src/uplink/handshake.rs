//! The handshake with a relay: protocol version, session, and its only trace chunk. Each command is
//! sent after the reply to the one before, because it depends on that reply.

use std::time::{Duration, Instant};

use relay_proto::chunk::CreateTraceChunk;
use relay_proto::producer::Producer;
use relay_proto::resume::{MakeResumable, ResumeSession};
use relay_proto::session::{CreateSession, DaemonId, Recording, TraceFormat};
use relay_proto::{Command, CommandCode, Reply, ReturnCode};
use tracing::warn;
use wire::{Bytes, EpochSeconds, Micros, SessionId, Text};

use super::connection::Connection;
use super::error::UplinkError;
use super::exchange::exchange_versions;
use super::exchange::{send_and_receive, send_and_wait};
use super::upload::{CHUNK, RelaySession, TracefileLimits};
use crate::limits::MAX_TRACEFILES;
use crate::queue::SessionDescription;

/// The parameters of the session that is opened on the relay.
#[derive(Debug, Clone, Copy)]
pub(super) struct HandshakeParameters<'a> {
    pub(super) description: &'a SessionDescription,
    pub(super) base_path: &'a str,
    pub(super) daemon: DaemonId,
    /// The session's number in this process.
    pub(super) id: u64,
    pub(super) created: EpochSeconds,
    /// Whether a relay has opened the session before: then a refusal is not about its name.
    pub(super) has_been_opened: bool,
    /// Whether a relay may have the session, because an earlier connection asked for it.
    pub(super) may_exist: bool,
    /// Whether all packets of the session are confirmed, so that a relay which does not have the
    /// session has closed it.
    pub(super) is_all_confirmed: bool,
    /// How long the relay is to keep the session without a connection.
    pub(super) resume_timeout: Duration,
}

/// How a relay has the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    /// A new session, although the relay was asked to continue one if `may_exist` is set and it
    /// knows how.
    New {
        /// Whether the relay could have continued a session.
        has_resume: bool,
    },
    /// The session of an earlier connection.
    Resumed,
}

/// A session on a relay, the path of its trace below the output of the relay, and how the relay has
/// it.
pub(super) type OpenedOnRelay = (RelaySession, Text, Opened);

/// Opens or resumes a session on a relay. None if nothing is left to be done for the session.
///
/// # Errors
/// [`UplinkError::DirectoryInUse`] if a session of the same name was created in the same second: by
/// another process, or by this one before it was started again. With another second, the next
/// connection succeeds.
pub(super) async fn open_relay_session(
    pair: &mut Connection,
    parameters: HandshakeParameters<'_>,
) -> Result<Option<OpenedOnRelay>, UplinkError> {
    let HandshakeParameters {
        description,
        created,
        ..
    } = parameters;
    let mut machine = Producer::default();
    let minor = exchange_versions(pair, &mut machine).await?;
    if description.trace_format == TraceFormat::Ctf2 && !minor.names_trace_format() {
        warn!(
            session = %description.name,
            "the relay is older than 2.15 and does not know CTF 2; the trace is sent unchanged"
        );
    }
    let has_resume = machine.has_resume();
    let resumed = if has_resume && parameters.may_exist {
        resume_session(pair, &mut machine, parameters).await?
    } else {
        None
    };
    let (session, path, how) = match resumed {
        Some((session, path)) => (session, path, Opened::Resumed),
        // The relay has closed the session: at the request of this process, whose reply was lost,
        // or because nobody had resumed it in time.
        None if parameters.is_all_confirmed => return Ok(None),
        None => {
            let (session, path) = create_session(pair, &mut machine, parameters).await?;
            (session, path, Opened::New { has_resume })
        }
    };
    if how == (Opened::New { has_resume: true }) {
        // `Duration::MAX` becomes the longest timeout that the command can have.
        let timeout = u32::try_from(parameters.resume_timeout.as_secs()).unwrap_or(u32::MAX);
        let keep = Command::MakeResumable(MakeResumable { timeout });
        let reply = send_and_receive(pair, &mut machine, &keep).await?;
        if reply == Reply::Ended(ReturnCode::EXISTS) {
            let name = description.name.clone();
            return Err(UplinkError::DirectoryInUse { name });
        }
        if !reply.is_ok() {
            return Err(UplinkError::refused(keep.code(), &reply));
        }
    }
    // No effect in a session that has the chunk already.
    let chunk = CreateTraceChunk {
        chunk: CHUNK,
        created,
        name: None,
    };
    send_and_wait(pair, &mut machine, &Command::CreateTraceChunk(chunk)).await?;
    let opened = RelaySession {
        machine,
        session,
        is_resumable: has_resume,
        tracefiles: tracefile_limits(description),
        created,
        at: Instant::now(),
    };
    Ok(Some((opened, path, how)))
}

/// Returns the session of an earlier connection. None if the relay does not have it.
async fn resume_session(
    pair: &mut Connection,
    machine: &mut Producer,
    parameters: HandshakeParameters<'_>,
) -> Result<Option<(SessionId, Text)>, UplinkError> {
    let resume = Command::ResumeSession(ResumeSession {
        daemon: parameters.daemon,
        id: parameters.id,
    });
    match send_and_receive(pair, machine, &resume).await? {
        Reply::SessionCreated {
            session,
            code: ReturnCode::OK,
            path,
        } => Ok(Some((session, path.unwrap_or_default()))),
        _ => Ok(None),
    }
}

async fn create_session(
    pair: &mut Connection,
    machine: &mut Producer,
    parameters: HandshakeParameters<'_>,
) -> Result<(SessionId, Text), UplinkError> {
    let description = parameters.description;
    let recording = Recording {
        daemon: parameters.daemon,
        id: parameters.id,
        created: parameters.created,
        name_has_date: false,
        current_chunk: None,
    };
    let create = CreateSession {
        name: Text::from(description.name.as_str()),
        host: Text::from(description.host.as_str()),
        base_path: Text::from(parameters.base_path),
        live_timer: description.live_timer.map_or(Micros(0), live_timer_micros),
        snapshot: false,
        recording: Some(recording),
        trace_format: description.trace_format,
    };
    let created = send_and_wait(pair, machine, &Command::CreateSession(create)).await;
    match created {
        Ok(Reply::SessionCreated { session, path, .. }) => Ok((session, path.unwrap_or_default())),
        Ok(other) => Err(UplinkError::refused(CommandCode::CreateSession, &other)),
        Err(UplinkError::Refused { why, .. }) if !parameters.has_been_opened => {
            let name = description.name.clone();
            Err(UplinkError::SessionRefused { name, why })
        }
        Err(error) => Err(error),
    }
}

/// Converts the live timer. The result is never 0, which would mean that the session is not live.
fn live_timer_micros(period: Duration) -> Micros {
    Micros(u32::try_from(period.as_micros()).unwrap_or(u32::MAX).max(1))
}

/// Limits the tracefiles to what relays of LTTng survive: see [`MAX_TRACEFILES`].
fn tracefile_limits(description: &SessionDescription) -> TracefileLimits {
    let count = match (description.tracefile_size, description.tracefile_count) {
        (0, _) => 0,
        (_, 0) => MAX_TRACEFILES,
        (_, count) => count.min(MAX_TRACEFILES),
    };
    TracefileLimits {
        size: Bytes(description.tracefile_size),
        count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracefile_count_is_limited() {
        let count = |tracefile_size, tracefile_count| {
            let description = SessionDescription {
                tracefile_size,
                tracefile_count,
                ..SessionDescription::named("s")
            };
            tracefile_limits(&description).count
        };
        assert_eq!(count(0, 7), 0);
        assert_eq!(count(4096, 7), 7);
        assert_eq!(count(4096, 0), MAX_TRACEFILES);
        assert_eq!(count(4096, u64::MAX), MAX_TRACEFILES);
    }

    #[test]
    fn live_timer_of_a_live_session_is_never_zero() {
        assert_eq!(live_timer_micros(Duration::ZERO), Micros(1));
        assert_eq!(live_timer_micros(Duration::from_secs(1)), Micros(1_000_000));
        assert_eq!(live_timer_micros(Duration::MAX), Micros(u32::MAX));
    }
}
