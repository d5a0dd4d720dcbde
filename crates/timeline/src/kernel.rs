//! What the events of a Linux kernel, as LTTng and perf record them, say of CPUs and threads: which
//! thread a CPU runs, in which state each thread is, what interrupted it and what woke it.

use std::collections::HashMap;
use std::sync::Arc;

use viewer::interpret::interpreted_fields::InterpretedFields;
use viewer::interpret::kernel_threads::{KernelFields, KernelThreads};
use viewer::interpret::kind::RecordKind;
use viewer::interpret::name_numbers::shortened;

use super::arrows::{Arrow, ArrowEnd};
use super::kernel_class::{Interrupt, KernelClass, SOFTIRQS, ThreadState};
use super::row::{Action, EventPlace};
use super::store::{Session, Store, Track};
use super::thread_tracks::{Id, Owner, ThreadTracks, TrackOf};
use super::track::TrackRows;

/// Largest number of threads, and of CPUs, whose state is remembered. With one more, all are
/// forgotten.
const MAX_REMEMBERED: usize = 1 << 16;

/// Largest number of names of threads with their numbers. Names are never forgotten, and those of
/// events need room, too: further threads have their name only.
const MAX_LABELS: usize = 1 << 15;

/// An event of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct KernelEvent<'a> {
    pub(super) class: KernelClass,
    pub(super) kind: &'a RecordKind,
    /// The name of the class.
    pub(super) name: &'a str,
    /// The number of the name of the span that it begins or ends.
    pub(super) span: u32,
    pub(super) fields: &'a InterpretedFields,
    /// Nanoseconds since the clock's origin.
    pub(super) time: i64,
    pub(super) place: EventPlace,
    pub(super) is_shown: bool,
}

/// Where an event of a kernel is output, if it is not only the begin of a state.
#[derive(Debug)]
pub(super) struct KernelPlace {
    pub(super) track: Arc<Track>,
    /// Whether the track is that of a thread.
    pub(super) is_thread: bool,
    /// What the event is. Absent if that is known by its kind.
    pub(super) action: Option<Action>,
}

/// What is changed by an event.
pub(super) struct KernelOutput<'a> {
    pub(super) store: &'a Store,
    pub(super) tracks: &'a mut ThreadTracks,
    pub(super) session: &'a Arc<Session>,
}

/// The states of the CPUs and threads of kernels, one for each session.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    running: KernelThreads<u32>,
    cpus: HashMap<(u32, i64), Cpu>,
    threads: HashMap<(u32, i64), Thread>,
    /// The number of labels of threads so far.
    labels: usize,
    /// The numbers of the names of states.
    state_names: HashMap<ThreadState, u32>,
}

#[derive(Debug)]
struct Cpu {
    track: Arc<Track>,
    /// The number of its name. Absent before a wake-up on it.
    name: Option<u32>,
    /// Whether the track is that of others, too: then it has no state.
    is_shared: bool,
    /// The thread that it runs; 0 if it is idle. Absent if it is not known.
    thread: Option<i64>,
    /// Where that began, if it is output.
    running_since: Option<EventPlace>,
    /// The track of its interrupts. Absent before the first.
    interrupts: Option<Arc<Track>>,
    /// The number of interrupts that have not ended.
    interrupted: u32,
}

#[derive(Debug, Default)]
struct Thread {
    track: Option<Arc<Track>>,
    name: String,
    /// The name with the number of the thread, by its number. Absent if it is new.
    label: Option<u32>,
    process: Option<i64>,
    /// The process by which the track is found.
    process_of_track: Option<i64>,
    /// Absent if it is not known.
    state: Option<ThreadState>,
    /// Whether the event that the state began with is output.
    is_state_shown: bool,
    /// What woke the thread while it was about to leave its CPU.
    waking: Option<Arrow>,
}

impl Kernels {
    /// Changes the states of CPUs and threads by an event of a CPU. Returns the track of the CPU,
    /// and where else the event is output.
    pub(super) fn show(
        &mut self,
        event: &KernelEvent<'_>,
        mut output: KernelOutput<'_>,
    ) -> (Arc<Track>, Option<KernelPlace>) {
        self.forget_if_many();
        let (fields, session) = (event.fields, output.session.id);
        let cpu = fields.number(&["perf_cpu"]).or(fields.cpu).unwrap_or(0);
        // perf puts the subsystem in front.
        let plain = event.name.rsplit(':').next().unwrap_or_default();
        let thread = self.running.thread_of(plain, &session, cpu, fields);
        self.learn_threads(event, thread, &mut output);
        let cpu_track = Arc::clone(&self.cpu(cpu, &mut output).track);
        let thread = thread.filter(|thread| *thread > 0);
        match event.class {
            KernelClass::Switch { has_report_states } => {
                self.switch_thread(cpu, has_report_states, event, &mut output);
                return (cpu_track, None);
            }
            KernelClass::Interrupt(interrupt) => {
                let place = KernelPlace {
                    track: self.interrupt_track(cpu, &mut output),
                    is_thread: false,
                    action: Some(interrupt.action(event, output.store)),
                };
                self.change_interrupts(cpu, event, &mut output);
                return (cpu_track, Some(place));
            }
            KernelClass::Wakeup => self.wake_thread(cpu, thread, event, &mut output),
            KernelClass::Free => {
                if let Some(freed) = woken(fields) {
                    self.end_thread(freed, event, &mut output);
                }
            }
            _ => {}
        }
        let track = match thread {
            Some(thread) => self.thread_track(thread, &mut output),
            None => Arc::clone(&cpu_track),
        };
        let place = KernelPlace {
            track,
            is_thread: thread.is_some(),
            action: None,
        };
        (cpu_track, Some(place))
    }

    /// What CPUs do is not known after a time, because events of them are lost. The CPUs are those
    /// of these tracks.
    pub(super) fn forget_running(&mut self, tracks: &[Arc<Track>], time: i64, store: &Store) {
        for ((session, number), cpu) in &mut self.cpus {
            if !tracks.iter().any(|lost| lost.id == cpu.track.id) {
                continue;
            }
            let own = Some(&cpu.track).filter(|_| !cpu.is_shared);
            for track in own.into_iter().chain(&cpu.interrupts) {
                store.change_rows(track, |rows| rows.close_all(time));
            }
            (cpu.interrupted, cpu.running_since) = (0, None);
            self.running.forget_running(*session, *number);
            let thread = cpu.thread.take();
            let thread = thread.and_then(|thread| self.threads.get_mut(&(*session, thread)));
            if let Some(thread) = thread {
                (thread.state, thread.waking) = (None, None);
                if let Some(track) = &thread.track {
                    store.change_rows(track, |rows| rows.set_state(time, None));
                }
            }
        }
    }

    /// Forgets a session that has ended.
    pub(super) fn forget_session(&mut self, session: u32) {
        self.cpus.retain(|(of, _), _| *of != session);
        self.threads.retain(|(of, _), _| *of != session);
    }

    fn forget_if_many(&mut self) {
        if self.cpus.len().max(self.threads.len()) >= MAX_REMEMBERED {
            self.cpus.clear();
            self.threads.clear();
        }
    }

    /// Learns the names of threads, and of which processes they are. `running`: the thread that the
    /// event is of.
    fn learn_threads(
        &mut self,
        event: &KernelEvent<'_>,
        running: Option<i64>,
        output: &mut KernelOutput<'_>,
    ) {
        let fields = event.fields;
        match event.class {
            KernelClass::Switch { .. } => {
                for (names, comm) in [
                    (["prev_tid", "prev_pid"], "prev_comm"),
                    (["next_tid", "next_pid"], "next_comm"),
                ] {
                    self.set_name(fields.number(&names), fields.comm(comm), output);
                }
            }
            KernelClass::Wakeup => self.set_name(woken(fields), fields.comm("comm"), output),
            KernelClass::Fork => {
                let child = fields.number(&["child_tid", "child_pid"]);
                // The number may have been that of another thread before.
                if let Some(child) = child {
                    self.end_thread(child, event, output);
                }
                self.set_name(child, fields.comm("child_comm"), output);
            }
            KernelClass::Statedump => self.set_name(fields.number(&["tid"]), &fields.name, output),
            // Of a kernel, this is the name of the thread.
            _ => self.set_name(running, &fields.procname, output),
        }
    }

    /// Names a thread, unless the name is empty.
    fn set_name(&mut self, number: Option<i64>, name: &[u8], output: &mut KernelOutput<'_>) {
        let Some(number) = number.filter(|number| *number > 0) else {
            return;
        };
        let session = output.session.id;
        let thread = self.threads.entry((session, number)).or_default();
        let process = self.running.process(session, number);
        let has_new_process = process.is_some() && process != thread.process;
        let name = String::from_utf8_lossy(name);
        let name = shortened(&name);
        let has_new_name = !name.is_empty() && thread.name != name;
        if !has_new_name && !has_new_process {
            return;
        }
        thread.process = process.or(thread.process);
        if has_new_name {
            (thread.name, thread.label) = (name.to_owned(), None);
        }
        // The first thread of a process has its number and its name.
        if thread.process == Some(number) && !thread.name.is_empty() {
            let process = Id::Number(number);
            output.tracks.name_process(session, &process, &thread.name);
        }
        if let Some(track) = &thread.track {
            let process = thread.process.map(Id::Number);
            let label = label(&thread.name, number);
            output.tracks.describe(track, process.as_ref(), &label);
        }
    }

    fn cpu(&mut self, number: i64, output: &mut KernelOutput<'_>) -> &mut Cpu {
        let cpu = self.cpus.entry((output.session.id, number));
        cpu.or_insert_with(|| {
            let track = output.cpu_track(TrackOf::Cpu(number));
            Cpu {
                is_shared: output.tracks.is_shared(&track),
                track,
                name: None,
                thread: None,
                running_since: None,
                interrupts: None,
                interrupted: 0,
            }
        })
    }

    fn interrupt_track(&mut self, number: i64, output: &mut KernelOutput<'_>) -> Arc<Track> {
        let cpu = self.cpu(number, output);
        if let Some(track) = &cpu.interrupts {
            return Arc::clone(track);
        }
        let track = output.cpu_track(TrackOf::Interrupts(number));
        // There may be room for it later.
        if !output.tracks.is_shared(&track) {
            cpu.interrupts = Some(Arc::clone(&track));
        }
        track
    }

    fn thread_track(&mut self, number: i64, output: &mut KernelOutput<'_>) -> Arc<Track> {
        let thread = self.threads.entry((output.session.id, number)).or_default();
        if let Some(track) = thread.track.as_ref().filter(|track| !track.is_ended()) {
            return Arc::clone(track);
        }
        thread.process_of_track = thread.process;
        let owner = Owner {
            process: thread.process.map(Id::Number),
            process_name: match thread.process {
                Some(_) => "",
                None => "threads",
            },
            thread_name: &thread.name,
        };
        let of = TrackOf::Thread(Id::Number(number));
        let track = output
            .tracks
            .track(output.store, output.session, of, &owner);
        // There may be room for it later.
        if !output.tracks.is_shared(&track) {
            thread.track = Some(Arc::clone(&track));
        }
        track
    }

    /// A CPU runs another thread.
    fn switch_thread(
        &mut self,
        cpu: i64,
        has_report_states: bool,
        event: &KernelEvent<'_>,
        output: &mut KernelOutput<'_>,
    ) {
        let fields = event.fields;
        let previous = fields.number(&["prev_tid", "prev_pid"]);
        let next = fields.number(&["next_tid", "next_pid"]);
        let row = next.filter(|next| *next > 0 && event.is_shown);
        let row = row.map(|next| (self.label_number(next, output), event.place));
        let known = self.cpu(cpu, output);
        if let Some(interrupts) = known.interrupts.as_ref().filter(|_| known.interrupted > 0) {
            // No thread is switched in an interrupt: its end was not recorded.
            output
                .store
                .change_rows(interrupts, |rows| rows.close_all(event.time));
        }
        let before = std::mem::replace(&mut known.thread, next);
        known.running_since = row.map(|(_, place)| place);
        known.interrupted = 0;
        if !known.is_shared {
            let change = |rows: &mut TrackRows| rows.set_state(event.time, row);
            output.store.change_rows(&known.track, change);
        }
        // What another thread did meanwhile was not recorded.
        let missed = before.filter(|before| *before > 0 && Some(*before) != previous);
        if let Some(missed) = missed {
            self.set_state(missed, None, event, output);
        }
        if let Some(previous) = previous.filter(|previous| *previous > 0) {
            let state = fields.number(&["prev_state"]).unwrap_or(0);
            match ThreadState::after_switch(state, has_report_states) {
                Some(state) => self.leave_cpu(previous, state, event, output),
                None => self.end_thread(previous, event, output),
            }
        }
        if let Some(next) = next.filter(|next| *next > 0) {
            self.set_state(
                next,
                Some((ThreadState::Running, event.place)),
                event,
                output,
            );
        }
    }

    /// A thread leaves its CPU in a state, unless it has been woken meanwhile.
    fn leave_cpu(
        &mut self,
        number: i64,
        state: ThreadState,
        event: &KernelEvent<'_>,
        output: &mut KernelOutput<'_>,
    ) {
        let thread = self.threads.entry((output.session.id, number)).or_default();
        let waking = thread.waking.take().filter(|_| !state.can_run());
        let state = if waking.is_some() {
            ThreadState::Runnable
        } else {
            state
        };
        self.set_state(number, Some((state, event.place)), event, output);
        if let Some(arrow) = waking {
            let to = ArrowEnd {
                time: event.time,
                ..arrow.to
            };
            output.store.arrows.add(Arrow { to, ..arrow });
        }
    }

    /// An interrupt begins or ends, which keeps the thread that runs from going on.
    fn change_interrupts(
        &mut self,
        cpu: i64,
        event: &KernelEvent<'_>,
        output: &mut KernelOutput<'_>,
    ) {
        let cpu = self.cpu(cpu, output);
        let is_begin = matches!(event.kind, RecordKind::Begin(_));
        cpu.interrupted = match is_begin {
            true => cpu.interrupted.saturating_add(1),
            false => cpu.interrupted.saturating_sub(1),
        };
        let (before, after) = match (is_begin, cpu.interrupted) {
            (true, 1) if event.is_shown => (ThreadState::Running, ThreadState::Interrupted),
            (false, 0) => (ThreadState::Interrupted, ThreadState::Running),
            _ => return,
        };
        let (Some(number), Some(running_since)) = (cpu.thread, cpu.running_since) else {
            return;
        };
        let thread = self.threads.get(&(output.session.id, number));
        // A thread `ksoftirqd` is there to run software interrupts.
        let is_kept = thread.is_some_and(|thread| {
            thread.state == Some(before) && !thread.name.starts_with("ksoftirqd/")
        });
        if is_kept {
            // A thread that runs again passes the filters that it has passed before.
            let place = if is_begin { event.place } else { running_since };
            let event = KernelEvent {
                is_shown: true,
                ..*event
            };
            self.set_state(number, Some((after, place)), &event, output);
        }
    }

    /// A thread can run, because of what a CPU does. `waker`: the thread that the CPU runs.
    fn wake_thread(
        &mut self,
        cpu: i64,
        waker: Option<i64>,
        event: &KernelEvent<'_>,
        output: &mut KernelOutput<'_>,
    ) {
        let Some(woken) = woken(event.fields).filter(|woken| *woken > 0) else {
            return;
        };
        let thread = self.threads.entry((output.session.id, woken)).or_default();
        let (state, is_state_shown) = (thread.state, thread.is_state_shown);
        // The second of two events, or nothing was to be done.
        let is_known = matches!(state, Some(ThreadState::Runnable | ThreadState::Preempted));
        if is_known && (is_state_shown || !event.is_shown)
            || event.fields.number(&["success"]) == Some(0)
        {
            return;
        }
        let to = self.thread_track(woken, output);
        let known = self.cpu(cpu, output);
        let new_name = || output.store.name(&format!("CPU {cpu}"));
        let cpu_name = *known.name.get_or_insert_with(new_name);
        let interrupts = known.interrupts.clone();
        let from = match (interrupts.filter(|_| known.interrupted > 0), waker) {
            (Some(interrupts), _) => interrupts,
            (None, Some(waker)) => self.thread_track(waker, output),
            (None, None) => Arc::clone(&known.track),
        };
        let at = |track: &Track| ArrowEnd {
            track: track.id,
            time: event.time,
        };
        let arrow = Arrow {
            from: at(&from),
            to: at(&to),
            name: cpu_name,
            is_wakeup: true,
        };
        // It has decided to wait, and has not left its CPU yet.
        if matches!(state, Some(ThreadState::Running | ThreadState::Interrupted)) {
            let thread = self.threads.entry((output.session.id, woken)).or_default();
            thread.waking = Some(arrow).filter(|_| event.is_shown);
            return;
        }
        self.set_state(
            woken,
            Some((ThreadState::Runnable, event.place)),
            event,
            output,
        );
        if event.is_shown {
            output.store.arrows.add(arrow);
        }
    }

    /// A thread is gone.
    fn end_thread(&mut self, number: i64, event: &KernelEvent<'_>, output: &mut KernelOutput<'_>) {
        let session = output.session.id;
        let Some(thread) = self.threads.remove(&(session, number)) else {
            return;
        };
        if thread.track.is_some() {
            let process = thread.process_of_track.map(Id::Number);
            let (number, time) = (Id::Number(number), event.time);
            output
                .tracks
                .end_thread(session, process.as_ref(), number, time);
        }
    }

    /// Changes the state of a thread, which begins with the event at a place.
    fn set_state(
        &mut self,
        number: i64,
        state: Option<(ThreadState, EventPlace)>,
        event: &KernelEvent<'_>,
        output: &mut KernelOutput<'_>,
    ) {
        let track = self.thread_track(number, output);
        let thread = self.threads.entry((output.session.id, number)).or_default();
        let is_same = thread.state == state.map(|(state, _)| state);
        // A track of several threads has no state.
        if is_same && (thread.is_state_shown || !event.is_shown) || thread.track.is_none() {
            return;
        }
        thread.state = state.map(|(state, _)| state);
        thread.is_state_shown = event.is_shown;
        if thread.state == Some(ThreadState::Running) {
            thread.waking = None;
        }
        let row = state.filter(|_| event.is_shown);
        let row = row.map(|(state, place)| {
            let new = || output.store.name(state.name());
            (*self.state_names.entry(state).or_insert_with(new), place)
        });
        let change = |rows: &mut TrackRows| rows.set_state(event.time, row);
        output.store.change_rows(&track, change);
    }

    /// The number of the name of a thread with its number.
    fn label_number(&mut self, number: i64, output: &KernelOutput<'_>) -> u32 {
        let thread = self.threads.entry((output.session.id, number)).or_default();
        let (name, labels) = (&thread.name, &mut self.labels);
        *thread.label.get_or_insert_with(|| {
            *labels += 1;
            match *labels <= MAX_LABELS || name.is_empty() {
                true => output.store.name(&label(name, number)),
                false => output.store.name(name),
            }
        })
    }
}

/// The thread that an event is about, which is not the one that runs.
fn woken(fields: &InterpretedFields) -> Option<i64> {
    fields.number(&["tid", "pid"])
}

/// The name of a thread with its number.
fn label(name: &str, number: i64) -> String {
    match name {
        "" => format!("thread {number}"),
        name => format!("{name} {number}"),
    }
}

impl KernelOutput<'_> {
    /// A track of a CPU.
    fn cpu_track(&mut self, of: TrackOf) -> Arc<Track> {
        let owner = Owner {
            process_name: "CPUs",
            ..Owner::default()
        };
        self.tracks.track(self.store, self.session, of, &owner)
    }
}

impl Interrupt {
    /// The begin or end of an interrupt.
    fn action(self, event: &KernelEvent<'_>, store: &Store) -> Action {
        let fields = event.fields;
        let number = |name| {
            let number = fields.number(&[name]).unwrap_or(0);
            u64::from(u32::try_from(number).unwrap_or(u32::MAX))
        };
        // Numbers of the kinds do not overlap.
        let id = match self {
            Self::Handler => number("irq"),
            Self::Software => 1 << 32 | number("vec"),
            Self::Named => 2 << 32 | u64::from(event.span),
        };
        if !matches!(event.kind, RecordKind::Begin(_)) {
            return Action::Exit(id);
        }
        let name = match self {
            Self::Handler => {
                let name = String::from_utf8_lossy(&fields.name);
                store.name(format!("irq {} {name}", number("irq")).trim_end())
            }
            Self::Software => {
                let vector = usize::try_from(number("vec")).unwrap_or(usize::MAX);
                match SOFTIRQS.get(vector) {
                    Some(name) => store.name(name),
                    None => store.name(&format!("softirq {vector}")),
                }
            }
            Self::Named => event.span,
        };
        Action::Enter(name, id)
    }
}
