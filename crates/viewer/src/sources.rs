//! Opens the targets of commands that watch all sessions of their targets at once: `top` and `web`.

use std::path::Path;

use anyhow::{Context, bail};
use ctf::directory::TraceDirectory;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use viewer_proto::session::Seek;

use crate::align::live::SampleSources;
use crate::align::{AlignBy, Alignment, TraceAlignment, align_directory};
use crate::attach::archive::{ArchiveOptions, ArchiveSource};
use crate::attach::follow::{self, FollowOptions};
use crate::attach::target::{RelayTarget, Target};
use crate::attach::{MemoryBudget, SourceEvent, SourceHandle, TraceKey, relay};
use crate::directories::open_traces;
use crate::mux::Stage;
use crate::run::UsageError;

/// Largest number of source events that wait for the mux. Packets are bounded by the source itself.
pub const EVENT_CAPACITY: usize = 256;

/// A stage that shows the events of each session apart.
pub trait SessionStage: Stage {
    /// Adds a trace of a session. `is_recording` says that it is read at once, not followed.
    fn add_trace(&mut self, trace: TraceKey, session: &str, is_recording: bool);

    /// Called when it is known how a trace that has been added is aligned, and when that has
    /// changed.
    fn align_trace(&mut self, alignment: TraceAlignment) {
        let _ = alignment;
    }
}

/// What has been opened.
pub struct OpenedSources {
    /// Relays, archives, and directories that are being written: their events come through the
    /// channel.
    pub running: Vec<SourceHandle>,
    /// Traces that are complete, and that the stage has been told of.
    pub complete: Vec<(TraceKey, TraceDirectory)>,
    /// What is known of the clocks. Absent if times are shown as they are.
    pub samples: Option<SampleSources>,
}

/// Opens all targets. Events of relays, archives and growing directories come through `sender`,
/// their packets in `memory`. Traces that cannot be read are reported to `stage`. With `align`,
/// times are corrected by what is known of the clocks of hosts.
///
/// # Errors
/// If a target cannot be read.
pub fn open(
    (targets, seek, align): (&[Target], Seek, Option<AlignBy>),
    memory: &MemoryBudget,
    sender: &Sender<SourceEvent>,
    is_held_back: &watch::Receiver<bool>,
    stage: &mut impl SessionStage,
) -> anyhow::Result<OpenedSources> {
    let mut directories = Vec::new();
    let mut growing = Vec::new();
    for target in targets {
        if let Target::Directory(path) = target {
            let cannot = || format!("cannot read {}", path.display());
            match follow::is_live(path).with_context(cannot)? {
                true if align == Some(AlignBy::Samples) => bail!(UsageError(not_aligned(path))),
                true => growing.push(path),
                false => directories.push(path.clone()),
            }
        }
    }
    let mut traces = Vec::new();
    if !directories.is_empty() {
        traces = open_traces(&directories, |what| stage.report_failure(what))?;
    }
    let (mut samples, mut packets) = (None, None);
    match align {
        None => {}
        Some(AlignBy::Samples) => samples = Some(open_samples(targets, &traces, stage)?),
        Some(AlignBy::Network) if directories.len() < targets.len() => {
            bail!(UsageError(AlignBy::NETWORK_NEEDS.to_owned()));
        }
        Some(AlignBy::Network) => packets = Some(Alignment::of_packets(&traces)),
    }
    let complete = traces.into_iter().map(|mut trace| {
        let key = TraceKey::fresh();
        let path = trace.paths.first();
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        // The name is shown to users: a trace without one is told from others by its path.
        let name = match session_of_trace(&trace.name) {
            "" => &path,
            name => name,
        };
        stage.add_trace(key, name, true);
        let known = samples.as_ref().map(SampleSources::alignment);
        if let Some(alignment) = packets.as_ref().or(known)
            && let Some(aligned) = align_directory(key, &mut trace, alignment)
        {
            stage.align_trace(aligned);
        }
        (key, trace)
    });
    let complete = complete.collect();
    let mut running = Vec::new();
    for path in growing {
        let options = FollowOptions {
            memory: memory.clone(),
            ..FollowOptions::default()
        };
        running.push(follow::spawn(path.clone(), options, sender.clone())?);
    }
    for target in targets {
        match target {
            Target::Directory(_) => {}
            Target::Archive(target) => {
                let cannot = || format!("cannot read {target}");
                let source = ArchiveSource::open(target.clone()).with_context(cannot)?;
                let options = ArchiveOptions {
                    corrections: samples.as_ref().map(SampleSources::corrections),
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
    Ok(OpenedSources {
        running,
        complete,
        samples,
    })
}

/// Says why a directory cannot be aligned.
#[must_use]
pub fn not_aligned(path: &Path) -> String {
    format!(
        "{}: is being written, which --align cannot follow: name the relay that writes it",
        path.display()
    )
}

/// Begins to read the samples of clocks.
fn open_samples(
    targets: &[Target],
    complete: &[TraceDirectory],
    stage: &mut impl SessionStage,
) -> anyhow::Result<SampleSources> {
    let (samples, is_late) = SampleSources::open(targets, complete)?;
    if is_late {
        let what = "the samples of clocks are not read yet: hosts are unaligned until they are";
        stage.report_warning(what);
    }
    Ok(samples)
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
    let session = domains.min_by_key(|before| before.len()).unwrap_or(name);
    without_repeated_host(session)
}

/// The name of a trace, which begins with its host, without that if the path below begins with it,
/// too: a relay writes to a directory of that name.
#[must_use]
pub fn without_repeated_host(name: &str) -> &str {
    let below = name.split_once('/').filter(|(host, below)| {
        let rest = below.strip_prefix(host);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    below.map_or(name, |(_, below)| below)
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
            ("vm/vm/my-session/ust/uid/0/64-bit", "vm/my-session"),
            ("vm/vmx/my-session", "vm/vmx/my-session"),
            ("vm/vm", "vm"),
            ("recording", "recording"),
        ] {
            assert_eq!(session_of_trace(trace), session);
        }
    }
}
