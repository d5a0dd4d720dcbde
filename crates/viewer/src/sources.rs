//! Opens the targets of commands that watch all sessions of their targets at once: `top` and `web`.

use anyhow::Context;
use ctf::directory::TraceDirectory;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use viewer_proto::session::Seek;

use crate::attach::archive::{ArchiveOptions, ArchiveSource};
use crate::attach::follow::{self, FollowOptions};
use crate::attach::target::{RelayTarget, Target};
use crate::attach::{MemoryBudget, SourceEvent, SourceHandle, TraceKey, relay};
use crate::directories::open_traces;
use crate::mux::Stage;

/// Largest number of source events that wait for the mux. Packets are bounded by the source itself.
pub const EVENT_CAPACITY: usize = 256;

/// A stage that shows the events of each session apart.
pub trait SessionStage: Stage {
    /// Adds a trace of a session. `is_recording` says that it is read at once, not followed.
    fn add_trace(&mut self, trace: TraceKey, session: &str, is_recording: bool);
}

/// What has been opened.
pub struct OpenedSources {
    /// Relays, archives, and directories that are being written: their events come through the
    /// channel.
    pub running: Vec<SourceHandle>,
    /// Traces that are complete, each with the name of its session.
    pub complete: Vec<(String, TraceDirectory)>,
}

/// Opens all targets. Events of relays, archives and growing directories come through `sender`,
/// their packets in `memory`. Traces that cannot be read are reported to `stage`.
pub fn open(
    targets: &[Target],
    seek: Seek,
    memory: &MemoryBudget,
    sender: &Sender<SourceEvent>,
    is_held_back: &watch::Receiver<bool>,
    stage: &mut impl Stage,
) -> anyhow::Result<OpenedSources> {
    let mut running = Vec::new();
    let mut directories = Vec::new();
    for target in targets {
        match target {
            Target::Directory(path) => {
                let cannot = || format!("cannot read {}", path.display());
                if follow::is_live(path).with_context(cannot)? {
                    let memory = memory.clone();
                    let options = FollowOptions {
                        memory,
                        ..FollowOptions::default()
                    };
                    running.push(follow::spawn(path.clone(), options, sender.clone())?);
                } else {
                    directories.push(path.clone());
                }
            }
            Target::Archive(target) => {
                let cannot = || format!("cannot read {target}");
                let source = ArchiveSource::open(target.clone()).with_context(cannot)?;
                let options = ArchiveOptions {
                    memory: memory.clone(),
                    ..ArchiveOptions::default()
                };
                running.push(source.spawn(options, sender.clone(), is_held_back.clone())?);
            }
            Target::Relay(target) => {
                let options = relay_options(target, seek, memory);
                let is_held_back = is_held_back.clone();
                let source = relay::spawn(target.clone(), options, sender.clone(), is_held_back);
                running.push(source?);
            }
        }
    }
    let mut complete = Vec::new();
    if !directories.is_empty() {
        for trace in open_traces(&directories, |what| stage.report_failure(what))? {
            let path = trace.paths.first();
            let path = path.map_or_else(String::new, |path| path.display().to_string());
            let name = match session_of_trace(&trace.name) {
                "" => path,
                name => name.to_owned(),
            };
            // The name is shown to users: a trace without one is told from others by its path.
            complete.push((name, trace));
        }
    }
    Ok(OpenedSources { running, complete })
}

fn relay_options(target: &RelayTarget, seek: Seek, memory: &MemoryBudget) -> relay::RelayOptions {
    // As without a command: a whole relay is watched until it is left, a session until it ends.
    let follow = target.session.is_none();
    relay::RelayOptions {
        seek,
        missing: if follow {
            relay::Missing::Wait
        } else {
            relay::Missing::Fail
        },
        follow,
        retry: follow,
        reconnect_timeout: None,
        memory: memory.clone(),
        ..relay::RelayOptions::default()
    }
}

/// Tells a stage about a trace that a source announces.
pub fn announce_trace(event: &SourceEvent, stage: &mut impl SessionStage) {
    if let SourceEvent::Trace {
        trace,
        name,
        session,
    } = event
    {
        let session = session.as_deref();
        let session = session.unwrap_or_else(|| session_of_trace(name));
        stage.add_trace(*trace, session, false);
    }
}

/// The session that a trace in a directory is of: its path up to the tracing domain, as LTTng names
/// directories.
fn session_of_trace(name: &str) -> &str {
    let domains = ["/ust", "/kernel"].iter().filter_map(|domain| {
        let (before, after) = name.split_once(domain)?;
        (after.is_empty() || after.starts_with('/')).then_some(before)
    });
    // The first domain in the path: a directory below it may be called like the other one.
    domains.min_by_key(|before| before.len()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_of_a_trace_on_disk_is_its_path_up_to_the_tracing_domain() {
        for (trace, session) in [
            ("vm/my-session-2026/ust/uid/0/64-bit", "vm/my-session-2026"),
            ("vm/my-session/kernel", "vm/my-session"),
            ("vm/kernels/ustad/x", "vm/kernels/ustad/x"),
            ("recording", "recording"),
        ] {
            assert_eq!(session_of_trace(trace), session);
        }
    }
}
