//! What the events of a Linux kernel, as LTTng and perf record them, say of CPUs and threads: which
//! thread a CPU runs, in which state each thread is, what interrupted it and what woke it.

use std::collections::HashMap;
use std::sync::Arc;

use viewer::interpret::interpreted_fields::InterpretedFields;
use viewer::interpret::kernel_threads::{KernelFields, KernelThreads};
use viewer::interpret::kind::RecordKind;

use super::arrows::{Arrow, ArrowEnd};
use super::row::{Action, EventPlace};
use super::store::{Session, Store, Track};
use super::thread_tracks::{Id, Owner, ThreadTracks, TrackOf};
use super::track::TrackRows;

/// Largest number of threads, and of CPUs, whose state is remembered. With one more, all are
/// forgotten.
const MAX_REMEMBERED: usize = 1 << 16;

/// The names of software interrupts, by their numbers.
const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// What the events of a class of a kernel say of CPUs and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelClass {
    /// A CPU runs another thread.
    Switch,
    /// A thread can run.
    Wakeup,
    /// There is a new thread.
    Fork,
    /// A thread is gone, and its number may be used again.
    Free,
    /// A thread that existed when recording began.
    Statedump,
    /// The begin or end of what a CPU does besides the thread that it runs.
    Interrupt(Interrupt),
    /// Something that the thread does which runs.
    Other,
}

/// By what an interrupt is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Handler,
    Software,
    /// By the name of its class only.
    Named,
}

impl KernelClass {
    /// The class of a name, whose events are of a kind.
    pub(super) fn of(name: &str, kind: &RecordKind) -> Self {
        // perf puts the subsystem in front.
        match name.rsplit(':').next().unwrap_or_default() {
            "sched_switch" => Self::Switch,
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => Self::Wakeup,
            "sched_process_fork" => Self::Fork,
            "sched_process_free" => Self::Free,
            "lttng_statedump_process_state" => Self::Statedump,
            _ if !kind.is_interrupt() => Self::Other,
            name if name.starts_with("irq_handler_") => Self::Interrupt(Interrupt::Handler),
            name if name.contains("softirq_") => Self::Interrupt(Interrupt::Software),
            _ => Self::Interrupt(Interrupt::Named),
        }
    }

    /// Whether fields of the payload count.
    pub(super) fn needs_payload(self) -> bool {
        self != Self::Other
    }
}

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

/// Where an event of a kernel is shown, if it is not only the begin of a state.
#[derive(Debug)]
pub(super) struct KernelPlace {
    pub(super) track: Arc<Track>,
    /// Whether the track is that of a thread.
    pub(super) is_thread: bool,
    /// What the event is. Absent if that is known by its kind.
    pub(super) action: Option<Action>,
}

/// What is changed by an event.
pub(super) struct Shown<'a> {
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
}

#[derive(Debug)]
struct Cpu {
    track: Arc<Track>,
    /// The thread that it runs; 0 if it is idle. Absent if it is not known.
    thread: Option<i64>,
    /// The track of its interrupts. Absent before the first.
    interrupts: Option<Arc<Track>>,
    /// The number of interrupts that have not ended.
    interrupted: u32,
}

#[derive(Debug, Default)]
struct Thread {
    track: Option<Arc<Track>>,
    name: String,
    process: Option<i64>,
    /// Absent if it is not known.
    state: Option<State>,
}

/// The state of a thread. The page knows them by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Interrupted,
    Runnable,
    Preempted,
    Sleeping,
    Uninterruptible,
    Stopped,
    Traced,
    Parked,
    Idle,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Interrupted => "Interrupted",
            Self::Runnable => "Runnable",
            Self::Preempted => "Runnable (preempted)",
            Self::Sleeping => "Sleeping",
            Self::Uninterruptible => "Uninterruptible sleep",
            Self::Stopped => "Stopped",
            Self::Traced => "Traced",
            Self::Parked => "Parked",
            Self::Idle => "Idle",
        }
    }

    /// The state in which a thread leaves its CPU (`prev_state`), as the kernel has it
    /// (`include/linux/sched.h`) or as its events report it. `None` if it has ended.
    const fn after_switch(state: i64) -> Option<Self> {
        /// `TASK_NOLOAD` with `TASK_UNINTERRUPTIBLE`.
        const KERNEL_IDLE: i64 = 0x402;
        /// `EXIT_DEAD` and `EXIT_ZOMBIE`.
        const ENDED: i64 = 0x30;
        Some(match state {
            _ if state & KERNEL_IDLE == KERNEL_IDLE => Self::Idle,
            _ if state & 1 != 0 => Self::Sleeping,
            _ if state & 2 != 0 => Self::Uninterruptible,
            _ if state & 4 != 0 => Self::Stopped,
            _ if state & 8 != 0 => Self::Traced,
            _ if state & ENDED != 0 => return None,
            _ if state & 0x40 != 0 => Self::Parked,
            _ if state & 0x80 != 0 => Self::Idle,
            // The bits above say that it was preempted (`TASK_STATE_MAX`, `TASK_REPORT_MAX`).
            _ => Self::Preempted,
        })
    }

    const fn can_run(self) -> bool {
        matches!(
            self,
            Self::Running | Self::Interrupted | Self::Runnable | Self::Preempted
        )
    }
}

impl Kernels {
    /// Changes the states of CPUs and threads by an event of a CPU. Returns the track of the CPU,
    /// and where else the event is shown.
    pub(super) fn show(
        &mut self,
        event: &KernelEvent<'_>,
        mut shown: Shown<'_>,
    ) -> (Arc<Track>, Option<KernelPlace>) {
        self.forget_if_many();
        let (fields, session) = (event.fields, shown.session.id);
        let cpu = fields.number(&["perf_cpu"]).or(fields.cpu).unwrap_or(0);
        // perf puts the subsystem in front.
        let plain = event.name.rsplit(':').next().unwrap_or_default();
        let thread = self.running.thread_of(plain, &session, cpu, fields);
        self.learn(event, thread, &mut shown);
        let cpu_track = Arc::clone(&self.cpu(cpu, &mut shown).track);
        let thread = thread.filter(|thread| *thread > 0);
        match event.class {
            KernelClass::Switch => {
                self.switch(cpu, event, &mut shown);
                return (cpu_track, None);
            }
            KernelClass::Interrupt(interrupt) => {
                let place = KernelPlace {
                    track: self.interrupt_track(cpu, &mut shown),
                    is_thread: false,
                    action: Some(interrupt.action(event, shown.store)),
                };
                self.interrupt(cpu, event, &mut shown);
                return (cpu_track, Some(place));
            }
            KernelClass::Wakeup => self.wake(cpu, thread, event, &mut shown),
            KernelClass::Free => self.free(event, &shown),
            _ => {}
        }
        let track = match thread {
            Some(thread) => self.thread_track(thread, &mut shown),
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
    pub(super) fn lose(&mut self, tracks: &[Arc<Track>], time: i64, store: &Store) {
        for ((session, _), cpu) in &mut self.cpus {
            if !tracks.iter().any(|lost| lost.id == cpu.track.id) {
                continue;
            }
            store.change_rows(&cpu.track, |rows| rows.set_state(time, None));
            cpu.interrupted = 0;
            let thread = cpu.thread.take();
            let thread = thread.and_then(|thread| self.threads.get_mut(&(*session, thread)));
            if let Some(thread) = thread {
                thread.state = None;
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
    fn learn(&mut self, event: &KernelEvent<'_>, running: Option<i64>, shown: &mut Shown<'_>) {
        let fields = event.fields;
        match event.class {
            KernelClass::Switch => {
                for (names, comm) in [
                    (["prev_tid", "prev_pid"], "prev_comm"),
                    (["next_tid", "next_pid"], "next_comm"),
                ] {
                    self.name(fields.number(&names), fields.comm(comm), shown);
                }
            }
            KernelClass::Wakeup => self.name(woken(fields), fields.comm("comm"), shown),
            KernelClass::Fork => {
                let child = fields.number(&["child_tid", "child_pid"]);
                // The number may have been that of another thread before.
                let before =
                    child.and_then(|child| self.threads.remove(&(shown.session.id, child)));
                if let Some(track) = before.and_then(|before| before.track) {
                    track.end(event.time);
                }
                self.name(child, fields.comm("child_comm"), shown);
            }
            KernelClass::Statedump => self.name(fields.number(&["tid"]), &fields.name, shown),
            // Of a kernel, this is the name of the thread.
            _ => self.name(running, &fields.procname, shown),
        }
    }

    /// Names a thread, unless the name is empty.
    fn name(&mut self, number: Option<i64>, name: &[u8], shown: &mut Shown<'_>) {
        let Some(number) = number.filter(|number| *number > 0) else {
            return;
        };
        let session = shown.session.id;
        let thread = self.threads.entry((session, number)).or_default();
        let process = thread.process;
        let known = || self.running.process(session, number);
        thread.process = process.or_else(known);
        let has_new_name = !name.is_empty() && thread.name.as_bytes() != name;
        if !has_new_name && process == thread.process {
            return;
        }
        if has_new_name {
            thread.name = String::from_utf8_lossy(name).into_owned();
        }
        // The first thread of a process has its number and its name.
        if thread.process == Some(number) && !thread.name.is_empty() {
            shown
                .tracks
                .name_process(session, &Id::Number(number), &thread.name);
        }
        if let Some(track) = &thread.track {
            let process = thread.process.map(Id::Number);
            shown
                .tracks
                .describe(track, process.as_ref(), &thread.label(number));
        }
    }

    fn cpu(&mut self, number: i64, shown: &mut Shown<'_>) -> &mut Cpu {
        let cpu = self.cpus.entry((shown.session.id, number));
        cpu.or_insert_with(|| Cpu {
            track: shown.cpu_track(TrackOf::Cpu(number)),
            thread: None,
            interrupts: None,
            interrupted: 0,
        })
    }

    fn interrupt_track(&mut self, number: i64, shown: &mut Shown<'_>) -> Arc<Track> {
        let cpu = self.cpu(number, shown);
        let track = cpu.interrupts.take();
        let track = track.unwrap_or_else(|| shown.cpu_track(TrackOf::Interrupts(number)));
        cpu.interrupts = Some(Arc::clone(&track));
        track
    }

    fn thread_track(&mut self, number: i64, shown: &mut Shown<'_>) -> Arc<Track> {
        let thread = self.threads.entry((shown.session.id, number)).or_default();
        if let Some(track) = thread.track.as_ref().filter(|track| !track.is_ended()) {
            return Arc::clone(track);
        }
        thread.process = thread
            .process
            .or_else(|| self.running.process(shown.session.id, number));
        let owner = Owner {
            process: thread.process.map(Id::Number),
            process_name: match thread.process {
                Some(_) => "",
                None => "threads",
            },
            thread_name: &thread.name,
        };
        let of = TrackOf::Thread(Id::Number(number));
        let track = shown.tracks.track(shown.store, shown.session, of, &owner);
        // There may be room for it later.
        if !shown.tracks.is_shared(&track) {
            thread.track = Some(Arc::clone(&track));
        }
        track
    }

    /// A CPU runs another thread.
    fn switch(&mut self, cpu: i64, event: &KernelEvent<'_>, shown: &mut Shown<'_>) {
        let fields = event.fields;
        let previous = fields.number(&["prev_tid", "prev_pid"]);
        let next = fields.number(&["next_tid", "next_pid"]);
        let known = self.cpu(cpu, shown);
        let track = Arc::clone(&known.track);
        (known.thread, known.interrupted) = (next, 0);
        let next = next.filter(|next| *next > 0);
        let name = next.and_then(|next| {
            let thread = self.threads.get(&(shown.session.id, next))?;
            Some(shown.store.name(&thread.label(next)))
        });
        let row = name
            .filter(|_| event.is_shown)
            .map(|name| (name, event.place));
        let change = |rows: &mut TrackRows| rows.set_state(event.time, row);
        shown.store.change_rows(&track, change);
        if let Some(previous) = previous.filter(|previous| *previous > 0) {
            let state = fields.number(&["prev_state"]).unwrap_or(0);
            self.set_state(previous, State::after_switch(state), event, shown);
        }
        if let Some(next) = next {
            self.set_state(next, Some(State::Running), event, shown);
        }
    }

    /// An interrupt begins or ends, which keeps the thread that runs from going on.
    fn interrupt(&mut self, cpu: i64, event: &KernelEvent<'_>, shown: &mut Shown<'_>) {
        let cpu = self.cpu(cpu, shown);
        let is_begin = matches!(event.kind, RecordKind::Begin(_));
        cpu.interrupted = match is_begin {
            true => cpu.interrupted.saturating_add(1),
            false => cpu.interrupted.saturating_sub(1),
        };
        let (before, after) = match (is_begin, cpu.interrupted) {
            (true, 1) => (State::Running, State::Interrupted),
            (false, 0) => (State::Interrupted, State::Running),
            _ => return,
        };
        let Some(number) = cpu.thread.filter(|thread| *thread > 0) else {
            return;
        };
        let thread = self.threads.get(&(shown.session.id, number));
        // That thread is there to run software interrupts.
        let is_kept = |thread: &&Thread| {
            thread.state == Some(before) && !thread.name.starts_with("ksoftirqd/")
        };
        if thread.is_some_and(|thread| is_kept(&thread)) {
            self.set_state(number, Some(after), event, shown);
        }
    }

    /// A thread can run, because of what a CPU does. `waker`: the thread that the CPU runs.
    fn wake(
        &mut self,
        cpu: i64,
        waker: Option<i64>,
        event: &KernelEvent<'_>,
        shown: &mut Shown<'_>,
    ) {
        let Some(woken) = woken(event.fields).filter(|woken| *woken > 0) else {
            return;
        };
        let known = self.threads.get(&(shown.session.id, woken));
        let state = known.and_then(|thread| thread.state);
        let is_awake = state.is_some_and(State::can_run);
        // The second of two events, or nothing was to be done.
        if is_awake || event.fields.number(&["success"]) == Some(0) {
            return;
        }
        self.set_state(woken, Some(State::Runnable), event, shown);
        let known = self.cpu(cpu, shown);
        let interrupts = known.interrupts.clone();
        let from = match (interrupts.filter(|_| known.interrupted > 0), waker) {
            (Some(interrupts), _) => interrupts,
            (None, Some(waker)) => self.thread_track(waker, shown),
            (None, None) => Arc::clone(&known.track),
        };
        let at = |track: &Track| ArrowEnd {
            track: track.id,
            time: event.time,
        };
        if event.is_shown {
            shown.store.arrows.add(Arrow {
                from: at(&from),
                to: at(&self.thread_track(woken, shown)),
                name: shown.store.name(&format!("CPU {cpu}")),
                is_wakeup: true,
            });
        }
    }

    /// A thread is gone.
    fn free(&mut self, event: &KernelEvent<'_>, shown: &Shown<'_>) {
        let freed = woken(event.fields);
        let freed = freed.and_then(|freed| self.threads.remove(&(shown.session.id, freed)));
        if let Some(track) = freed.and_then(|freed| freed.track) {
            track.end(event.time);
        }
    }

    fn set_state(
        &mut self,
        number: i64,
        state: Option<State>,
        event: &KernelEvent<'_>,
        shown: &mut Shown<'_>,
    ) {
        let track = self.thread_track(number, shown);
        let thread = self.threads.entry((shown.session.id, number)).or_default();
        // A track of several threads has no state.
        if thread.state == state || thread.track.is_none() {
            return;
        }
        thread.state = state;
        let state = state.filter(|_| event.is_shown);
        let row = state.map(|state| (shown.store.name(state.name()), event.place));
        let change = |rows: &mut TrackRows| rows.set_state(event.time, row);
        shown.store.change_rows(&track, change);
    }
}

/// The thread that an event is about, which is not the one that runs.
fn woken(fields: &InterpretedFields) -> Option<i64> {
    fields.number(&["tid", "pid"])
}

impl Thread {
    fn label(&self, number: i64) -> String {
        match &*self.name {
            "" => format!("thread {number}"),
            name => format!("{name} {number}"),
        }
    }
}

impl Shown<'_> {
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
                    Some(name) => store.name(&format!("softirq {name}")),
                    None => store.name(&format!("softirq {vector}")),
                }
            }
            Self::Named => event.span,
        };
        Action::Enter(name, id)
    }
}
