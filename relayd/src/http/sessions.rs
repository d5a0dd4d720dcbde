//! The sessions of a relay as a JSON array.

use serde_json::{Value, json};

use crate::registry::Registry;
use crate::registry::session::Session;

/// All sessions: those whose producer is connected, then those that wait for their last packets.
pub(super) fn render(registry: &Registry) -> String {
    let (connected, lingering) = (registry.sessions(), registry.lingering());
    let connected = connected.iter().map(|session| (session, "recording"));
    let sessions = connected.chain(lingering.iter().map(|session| (session, "ending")));
    let sessions = sessions.map(|(session, state)| render_session(session, state));
    format!("{}\n", Value::Array(sessions.collect()))
}

/// The JSON object of a session, with `state` unless the session has failed, is detached or is
/// paused.
fn render_session(session: &Session, state: &str) -> Value {
    let identity = session.identity();
    let (streams, totals) = session.totals();
    let lags = session.viewer_lag().lags();
    let period = identity.live_timer.period();
    let state = match totals.paused {
        _ if session.has_failed() => "failed",
        _ if session.is_detached() => "detached",
        0 => state,
        _ => "paused",
    };
    json!({
        "id": identity.id.0,
        "host": identity.host.to_string(),
        "name": identity.name.to_string(),
        "live_timer_us": period.map(|_| identity.live_timer.0),
        "state": state,
        "streams": streams,
        "packets": totals.packets,
        "bytes": totals.bytes,
        "packets_lost": totals.lost,
        "packets_waiting": totals.waiting_packets,
        "viewers": lags.viewers,
        "slowest_viewer_lag": {
            "packets": lags.most.packets,
            "bytes": lags.most.bytes,
        },
    })
}
