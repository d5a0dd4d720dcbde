//! The tracks of hosts, processes, threads, CPUs, asynchronous ids and counters.
//!
//! The id of a track is a hash of all that it stands for. Perfetto also has numbers of 32 bits for
//! processes and threads, which are invented where the own ones do not fit; the own ones are in the
//! names then.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use tef::event::OwnerId;

use crate::message::{CounterDescriptor, ProcessDescriptor, ThreadDescriptor, TrackDescriptor};
use crate::{Encoder, TrackId};

/// The first of the invented numbers, above every real process: Linux has at most 2^22.
const FIRST_INVENTED: i32 = 1 << 23;
/// Largest number of tracks that are remembered. With one more, all are forgotten, and what comes
/// then gets other ones.
const MAX_REMEMBERED: usize = 1 << 16;

/// The tracks that have been described.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    generation: u64,
    described: HashSet<TrackId>,
    numbers: HashMap<TrackId, i32>,
    taken: HashSet<i32>,
    names: HashMap<TrackId, String>,
    invented: i32,
    /// The host of the first machine whose kernel is traced, as a hash. Its threads have their own
    /// numbers, and no others.
    kernel_host: Option<u64>,
}

/// The host of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host<'a> {
    /// A host of this name.
    Named(&'a str),
    /// The host of the trace of this number, which does not name it.
    OfTrace(u64),
}

/// Whose an event is.
#[derive(Debug, Clone)]
pub struct Owner<'a> {
    /// The host.
    pub host: Host<'a>,
    /// The name of the trace.
    pub trace: &'a str,
    /// The id of the process. Absent if it is not known.
    pub process: Option<OwnerId<'a>>,
    /// The name of the process. Absent if it is not known.
    pub process_name: Option<&'a str>,
    /// The id of the thread. Absent if it is not known.
    pub thread: Option<OwnerId<'a>>,
    /// The name of the thread. Absent if it is not known.
    pub thread_name: Option<&'a str>,
    /// The CPU, for events whose thread is not known.
    pub cpu: i64,
    /// Whether the events are in the order of one thread, although it is not known.
    pub is_recording: bool,
}

/// Where an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The track of the thread or the CPU.
    pub row: TrackId,
    /// The track of the process, or that of the whole trace.
    pub parent: TrackId,
    /// Whether only events of one thread come here.
    pub is_thread: bool,
}

/// A kind of track, so that two of them never have one hash.
#[derive(Debug, Hash)]
enum Kind {
    Host,
    Trace,
    Process,
    Thread,
    Cpu,
    Async,
    Counter,
    Lane,
    Loss,
}

impl Tracks {
    /// The place of an event of this owner. New tracks are described.
    pub(crate) fn place(&mut self, owner: &Owner<'_>, encoder: &mut Encoder) -> Place {
        let parent = self.parent(owner, encoder);
        let row = match (&owner.process, &owner.thread) {
            (Some(process), Some(thread)) => self.thread(parent, process, thread, owner, encoder),
            (None, Some(thread)) => {
                let row = self.id(Kind::Thread, (parent.0, thread));
                let name = owner.thread_name.unwrap_or("thread");
                self.plain(row, &format!("{name} {}", text(thread)), parent, encoder);
                row
            }
            (_, None) => {
                let row = self.id(Kind::Cpu, (parent.0, owner.cpu));
                let name = match owner.is_recording {
                    true => "recording".to_owned(),
                    false => format!("CPU {}", owner.cpu),
                };
                self.plain(row, &name, parent, encoder);
                row
            }
        };
        Place {
            row,
            parent,
            is_thread: owner.thread.is_some() || owner.is_recording,
        }
    }

    /// The track of the process, or of the whole trace.
    pub(crate) fn parent(&mut self, owner: &Owner<'_>, encoder: &mut Encoder) -> TrackId {
        match &owner.process {
            Some(process) => self.process(owner.host, process, owner, encoder),
            None => self.trace(owner, encoder),
        }
    }

    /// The track of a lane of a row that is not the row itself.
    pub(crate) fn lane(
        &mut self,
        row: TrackId,
        lane: u64,
        generation: u64,
        encoder: &mut Encoder,
    ) -> TrackId {
        let track = self.id(Kind::Lane, (row.0, lane, generation));
        // Lanes of one name are shown as one track of several lines.
        self.plain(track, "overlapping", row, encoder);
        track
    }

    /// The track of an asynchronous id below `parent`.
    pub(crate) fn asynchronous(
        &mut self,
        parent: TrackId,
        id: impl Hash,
        name: &str,
        encoder: &mut Encoder,
    ) -> TrackId {
        let track = self.id(Kind::Async, (parent.0, id));
        self.plain(track, name, parent, encoder);
        track
    }

    /// The track of what a stream has lost.
    pub(crate) fn losses(
        &mut self,
        owner: &Owner<'_>,
        stream: &str,
        encoder: &mut Encoder,
    ) -> TrackId {
        let parent = self.trace(owner, encoder);
        let track = self.id(Kind::Loss, (parent.0, stream));
        let name = format!("lost: {}", stream);
        self.plain(track, &name, parent, encoder);
        track
    }

    /// The track of a counter below `parent`.
    pub(crate) fn counter(
        &mut self,
        parent: TrackId,
        name: &str,
        encoder: &mut Encoder,
    ) -> TrackId {
        let track = self.id(Kind::Counter, (parent.0, name));
        if self.is_new(track) {
            encoder.track(TrackDescriptor {
                uuid: Some(track.0),
                name: Some(name.to_owned()),
                parent: Some(parent.0),
                counter: Some(CounterDescriptor {}),
                ..TrackDescriptor::default()
            });
        }
        track
    }

    fn process(
        &mut self,
        host: Host<'_>,
        id: &OwnerId<'_>,
        owner: &Owner<'_>,
        encoder: &mut Encoder,
    ) -> TrackId {
        let track = self.id(Kind::Process, (host, id));
        let is_new = self.is_new(track);
        if !is_new && !self.is_renamed(track, owner.process_name) {
            return track;
        }
        let pid = self.number(track, host, id);
        let own = id.number() == Some(pid.into());
        let mut name = full_name(owner.process_name, id, own, "PID");
        if let (Some(name), Host::Named(host)) = (&mut name, host) {
            // Processes of several hosts often have the same name.
            name.push_str(" @ ");
            name.push_str(host);
        }
        encoder.track(TrackDescriptor {
            uuid: Some(track.0),
            process: Some(ProcessDescriptor {
                pid: Some(pid),
                process_name: name,
            }),
            ..TrackDescriptor::default()
        });
        track
    }

    fn thread(
        &mut self,
        parent: TrackId,
        process: &OwnerId<'_>,
        id: &OwnerId<'_>,
        owner: &Owner<'_>,
        encoder: &mut Encoder,
    ) -> TrackId {
        let track = self.id(Kind::Thread, (parent.0, id));
        let is_new = self.is_new(track);
        if !is_new && !self.is_renamed(track, owner.thread_name) {
            return track;
        }
        let pid = self.number(parent, owner.host, process);
        // The first thread has the id of its process.
        let (tid, own) = match id.number().map(i32::try_from) {
            _ if id == process => (pid, id.number() == Some(pid.into())),
            Some(Ok(tid)) if tid > 0 && self.has_own_numbers(owner.host) => (tid, true),
            _ => (self.invented_number(track), false),
        };
        encoder.track(TrackDescriptor {
            uuid: Some(track.0),
            thread: Some(ThreadDescriptor {
                pid: Some(pid),
                tid: Some(tid),
                thread_name: full_name(owner.thread_name, id, own, "TID"),
            }),
            parent: Some(parent.0),
            ..TrackDescriptor::default()
        });
        track
    }

    /// The track of what is of no process.
    fn trace(&mut self, owner: &Owner<'_>, encoder: &mut Encoder) -> TrackId {
        let host = match owner.host {
            Host::Named(name) => {
                let host = self.id(Kind::Host, name);
                self.describe(host, name, None, encoder);
                Some(host)
            }
            Host::OfTrace(_) => None,
        };
        let trace = self.id(Kind::Trace, (owner.host, owner.trace));
        self.describe(trace, owner.trace, host, encoder);
        trace
    }

    fn plain(&mut self, track: TrackId, name: &str, parent: TrackId, encoder: &mut Encoder) {
        self.describe(track, name, Some(parent), encoder);
    }

    fn describe(
        &mut self,
        track: TrackId,
        name: &str,
        parent: Option<TrackId>,
        encoder: &mut Encoder,
    ) {
        if self.is_new(track) {
            encoder.track(TrackDescriptor {
                uuid: Some(track.0),
                name: Some(name.to_owned()),
                parent: parent.map(|parent| parent.0),
                ..TrackDescriptor::default()
            });
        }
    }

    fn is_new(&mut self, track: TrackId) -> bool {
        self.described.insert(track)
    }

    /// Whether a process or thread has another name than before.
    fn is_renamed(&mut self, track: TrackId, name: Option<&str>) -> bool {
        let Some(name) = name else {
            return false;
        };
        let is_renamed = self.names.get(&track).is_none_or(|known| known != name);
        if is_renamed {
            self.names.insert(track, name.to_owned());
        }
        is_renamed
    }

    /// Forgets everything if it is much. To be called between events.
    pub(crate) fn forget_if_many(&mut self) {
        if self.described.len() >= MAX_REMEMBERED {
            *self = Self {
                generation: self.generation + 1,
                // Numbers go on: one that was shown must not mean another process now.
                invented: self.invented,
                kernel_host: self.kernel_host,
                ..Self::default()
            };
        }
    }

    /// Gives threads of this host, and of no other, their own numbers from now on.
    pub(crate) fn set_kernel_host(&mut self, host: Host<'_>) {
        self.kernel_host = Some(hash(host));
    }

    fn has_own_numbers(&self, host: Host<'_>) -> bool {
        self.kernel_host.is_none_or(|known| known == hash(host))
    }

    /// The number of a process: its own, unless it does not fit or another host has it.
    fn number(&mut self, process: TrackId, host: Host<'_>, id: &OwnerId<'_>) -> i32 {
        if let Some(number) = self.numbers.get(&process) {
            return *number;
        }
        let own = id.number().and_then(|id| i32::try_from(id).ok());
        let own = own.filter(|_| self.has_own_numbers(host));
        match own.filter(|own| *own > 0 && self.taken.insert(*own)) {
            Some(own) => {
                self.numbers.insert(process, own);
                own
            }
            None => self.invented_number(process),
        }
    }

    fn invented_number(&mut self, track: TrackId) -> i32 {
        if let Some(number) = self.numbers.get(&track) {
            return *number;
        }
        let mut number = FIRST_INVENTED + self.invented;
        while !self.taken.insert(number) {
            self.invented += 1;
            number = FIRST_INVENTED + self.invented;
        }
        self.invented = (self.invented + 1) % (1 << 30);
        self.numbers.insert(track, number);
        number
    }

    fn id(&self, kind: Kind, of: impl Hash) -> TrackId {
        TrackId(hash((self.generation, kind, of)))
    }
}

/// Returns a number of 64 bits for something, not 0: the id of a track or a flow.
pub fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish().max(1)
}

/// The name of a process or thread, with its id if that is not its number.
fn full_name(name: Option<&str>, id: &OwnerId<'_>, is_number: bool, what: &str) -> Option<String> {
    match (name, is_number) {
        (name, true) => name.map(str::to_owned),
        (Some(name), false) => Some(format!("{name} ({what} {})", text(id))),
        (None, false) => Some(format!("{what} {}", text(id))),
    }
}

fn text(id: &OwnerId<'_>) -> String {
    match id {
        OwnerId::Number(number) => number.to_string(),
        OwnerId::Text(text) => text.to_string(),
    }
}
