//! The messages of Perfetto's trace format that are written, with the fields that are used.
//!
//! Names and numbers of fields are those of Perfetto's `protos/perfetto/trace`, except that `tag`
//! stands for `type`. Of a `oneof`, at most one field is set.

use prost::Message;

/// Flag of [`TracePacket::sequence_flags`]: what was interned before is forgotten.
/// (`SEQ_INCREMENTAL_STATE_CLEARED`)
pub const STATE_CLEARED: u32 = 1;
/// Flag of [`TracePacket::sequence_flags`]: the packet uses what was interned.
/// (`SEQ_NEEDS_INCREMENTAL_STATE`)
pub const NEEDS_STATE: u32 = 2;

/// A packet: one of the messages, and what is common to all.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    /// The processes and threads that exist.
    #[prost(message, optional, tag = "2")]
    pub process_tree: Option<ProcessTree>,
    /// The same instant on several clocks.
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    /// Nanoseconds on the clock of the trace.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// The sequence of packets that this one belongs to. (`trusted_packet_sequence_id`)
    #[prost(uint32, optional, tag = "10")]
    pub sequence: Option<u32>,
    /// What has happened on a track.
    #[prost(message, optional, boxed, tag = "11")]
    pub track_event: Option<Box<TrackEvent>>,
    /// Texts by number, for this and the following packets of the sequence.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// The flags [`STATE_CLEARED`] and [`NEEDS_STATE`], if they are set.
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// The system that the trace is of.
    #[prost(message, optional, tag = "45")]
    pub system_info: Option<SystemInfo>,
    /// A track that events are on.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
    /// The machine that the packet is of. Absent for the first one.
    #[prost(uint32, optional, tag = "98")]
    pub machine: Option<u32>,
}

impl TracePacket {
    /// The number of the field with the events of one CPU: an [`FtraceEventBundle`].
    /// (`ftrace_events`)
    ///
    /// [`FtraceEventBundle`]: crate::ftrace::FtraceEventBundle
    pub(crate) const FTRACE: u32 = 1;
}

/// The same instant on several clocks.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
}

/// The time of one clock.
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    /// One of the constants of this type.
    #[prost(uint32, optional, tag = "1")]
    pub clock: Option<u32>,
    /// The time of the clock in nanoseconds.
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

impl Clock {
    /// The clock that counts nanoseconds since 1970.
    pub const REALTIME: u32 = 1;
    /// The clock of packets that do not name theirs.
    pub const BOOTTIME: u32 = 6;
}

/// The system that the trace is of.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
}

/// The names of a kernel. (`uname(2)`)
#[expect(
    missing_docs,
    reason = "the names are those of the members of `struct utsname`"
)]
#[derive(Clone, PartialEq, Message)]
pub struct Utsname {
    #[prost(string, optional, tag = "1")]
    pub sysname: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub version: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub release: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub machine: Option<String>,
}

/// The name of a track, and what it stands for.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    /// The id, not 0.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The process that the track stands for.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The thread that the track stands for.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track that this one is shown below.
    #[prost(uint64, optional, tag = "5")]
    pub parent: Option<u64>,
    /// Set if the track is that of a counter.
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

/// A process that a track stands for.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    /// The id, unique in the whole trace.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// A thread that a track stands for.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct ThreadDescriptor {
    /// The id of its process.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}

/// What the track of a counter has.
#[derive(Clone, PartialEq, Message)]
pub struct CounterDescriptor {}

/// What happens on a track.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// Categories by their interned numbers.
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub annotations: Vec<DebugAnnotation>,
    /// One of the constants of this type. (`type`)
    #[prost(int32, optional, tag = "9")]
    pub tag: Option<i32>,
    /// The name by its interned number.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub track: Option<u64>,
    /// The value of a counter.
    #[prost(int64, optional, tag = "30")]
    pub counter_value: Option<i64>,
    /// The value of a counter.
    #[prost(double, optional, tag = "44")]
    pub double_counter_value: Option<f64>,
    /// Flows that go on after this event.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Flows that end at this event.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

impl TrackEvent {
    /// A slice begins. (`TYPE_SLICE_BEGIN`)
    pub const BEGIN: i32 = 1;
    /// The innermost slice of the track ends. (`TYPE_SLICE_END`)
    pub const END: i32 = 2;
    /// A point in time. (`TYPE_INSTANT`)
    pub const INSTANT: i32 = 3;
    /// A value of a counter. (`TYPE_COUNTER`)
    pub const COUNTER: i32 = 4;
}

/// An argument. At most one value is set.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct DebugAnnotation {
    /// The name by its interned number; absent of an element of an array.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    pub bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    pub double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// The members of a structure.
    #[prost(message, repeated, tag = "11")]
    pub members: Vec<Self>,
    /// The elements of an array.
    #[prost(message, repeated, tag = "12")]
    pub elements: Vec<Self>,
    /// A text by its interned number.
    #[prost(uint64, optional, tag = "17")]
    pub string_value_iid: Option<u64>,
}

/// Texts that later packets name by number.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub categories: Vec<InternedText>,
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<InternedText>,
    #[prost(message, repeated, tag = "3")]
    pub argument_names: Vec<InternedText>,
    #[prost(message, repeated, tag = "29")]
    pub argument_texts: Vec<InternedText>,
}

/// A text and its number.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct InternedText {
    /// The number, not 0.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub text: Option<String>,
}

/// The processes and threads that exist at a time.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    /// The threads other than the first ones of their processes.
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

/// A process that exists.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// The id of its parent.
    #[prost(int32, optional, tag = "2")]
    pub ppid: Option<i32>,
    /// Its command line; the first word is its name.
    #[prost(string, repeated, tag = "3")]
    pub cmdline: Vec<String>,
}

/// A thread that exists.
#[expect(missing_docs, reason = "the names are those of Perfetto's message")]
#[derive(Clone, PartialEq, Message)]
pub struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub tid: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The id of its process.
    #[prost(int32, optional, tag = "3")]
    pub tgid: Option<i32>,
}
