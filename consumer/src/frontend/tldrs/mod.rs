//! Forwards traces of the `tldrs` daemon to a relay, live, as CTF: one session for each trace,
//! while any client has the trace open.
//!
//! This module assigns traces to sessions; `session` turns items of the queue into events and hands
//! them to the packetizer; `clients` knows which clients are connected. A trace that is opened
//! again soon after its last client has disconnected continues in the same session: a build starts
//! its programs one after another.
//!
//! The daemon has stored the events before it queues them here: if this process dies, they are
//! missing on the relay, but not in the daemon's files.

mod clients;
mod config;
mod session;

use std::collections::HashMap;

pub use tldrs_daemon::DaemonOptions;
use tldrs_daemon::forward_queue::{ForwardedTrace, TraceSender, trace_channel};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::packetize::HostClock;
use crate::queue::SessionOpener;
pub use config::TldrsOptions;
pub use session::ForwardSettings;
use session::ForwardedSession;

/// Makes a forwarder for the traces of a `tldrs` daemon: the sending end for the daemon, and the
/// future that forwards. The future ends when the sending end has been dropped and the relay has
/// acknowledged everything, or the sessions have been given up.
pub fn start_forwarding(
    opener: SessionOpener,
    settings: ForwardSettings,
) -> (TraceSender, impl Future<Output = ()> + Send) {
    let (forward, traces) = trace_channel();
    (forward, run(traces, opener, settings))
}

/// Forwards traces until the sending end is dropped and all sessions have ended.
pub async fn run(
    mut traces: mpsc::Receiver<ForwardedTrace>,
    opener: SessionOpener,
    settings: ForwardSettings,
) {
    let activity = opener.activity();
    let clock = HostClock::measure().trace_clock();
    let mut open: HashMap<String, mpsc::UnboundedSender<ForwardedTrace>> = HashMap::new();
    let mut sessions = JoinSet::new();
    loop {
        let trace = tokio::select! {
            trace = traces.recv() => trace,
            Some(_) = sessions.join_next() => {
                // By the end of the channel and not by the name, which may have a new session by
                // now.
                open.retain(|_, reopen| !reopen.is_closed());
                continue;
            }
        };
        let Some(trace) = trace else { break };
        let trace = match open.get(&trace.name) {
            None => trace,
            Some(reopen) => match reopen.send(trace) {
                Ok(()) => continue,
                // The session is ending, and has refused the trace: it gets a new one.
                Err(unsent) => unsent.0,
            },
        };
        let (reopen, again) = mpsc::unbounded_channel();
        open.insert(trace.name.clone(), reopen);
        let session =
            ForwardedSession::new(&trace, opener.clone(), &settings, clock, activity.clone());
        sessions.spawn(session.run(trace, again));
    }
    // Dropping the senders ends the wait for a reopened trace in each session.
    open.clear();
    while sessions.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
