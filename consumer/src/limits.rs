//! Every limit in one place, each with its reason.

use std::time::Duration;

// What a session may have.

/// Metadata of all traces of a session, in bytes. It is kept for a relay that has to be told anew;
/// the largest that tracers of whole kernels write are a few megabytes.
pub const MAX_METADATA_BYTES: usize = 64 << 20;

/// Longest packet, in bytes: relays and viewers refuse longer ones.
pub const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Most tracefiles of a stream that a relay is asked to keep. Those of LTTng take memory by the
/// number, for each stream, and die of a large one. They also die where the size of tracefiles is
/// limited and their number is not, so that this is what they are told then: after so many files the
/// oldest is replaced.
pub const MAX_TRACEFILES: u64 = 65_536;

/// Host and base path together, in bytes: relays of LTTng die of more than 4096.
pub const MAX_PATH_BYTES: usize = 3072;

/// Longest session name, in bytes. The relay appends a date to it, and makes a file name of that.
pub const MAX_NAME_BYTES: usize = 200;

/// Longest name of a host, in bytes: that of a file.
pub const MAX_HOST_BYTES: usize = 255;

/// Longest path of a trace and name of a stream, in bytes: what the protocol allows, less what the
/// relay appends.
pub const MAX_TRACE_PATH_BYTES: usize = 254;
/// See [`MAX_TRACE_PATH_BYTES`].
pub const MAX_CHANNEL_BYTES: usize = 240;

/// Longest packet that is made here for one event, in bytes: twice what a line of the `tldrs` daemon
/// may be, unless that is told otherwise.
pub const MAX_EVENT_PACKET_BYTES: usize = 32 << 20;

/// How often viewers are told that nothing happens on a stream, even if nothing happens on any: they
/// may be merging it with those of other hosts.
pub const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// A trace that is opened again within this time after its last client has gone goes on in its
/// session: a build starts its programs one after the other.
pub const REOPEN_WITHIN: Duration = Duration::from_secs(1);

// What is under way to a relay.

/// Commands that are sent before the first of them is answered. A real relay handles one in some ten
/// microseconds: this covers a few milliseconds of distance.
pub const MAX_IN_FLIGHT: usize = 256;

/// Bytes of packets that are handed to the system in one call, at most about; no further packet is
/// taken on before.
pub const GATHERED_BYTES: usize = 1 << 20;

/// Pieces that are handed to the system in one call: a packet is two of them.
pub const GATHERED_PIECES: usize = 64;

/// Bytes of commands that wait to be written before metadata is appended to them.
pub const CONTROL_BYTES: usize = 256 << 10;

/// Pieces in which metadata is sent. A relay takes each into memory as a whole; but viewers who ask
/// between two of them may be shown half a declaration, so that most metadata should be one.
pub const METADATA_PIECE: usize = 1 << 20;

/// While there is more to send, the relay is asked whether it has everything of a stream after so
/// many packets ...
pub const CONFIRM_PACKETS: u64 = 32;
/// ... or so many bytes of it; when there is not, at once.
pub const CONFIRM_BYTES: u64 = 4 << 20;

/// It is asked again after this time if it has not.
pub const CONFIRM_PAUSE: Duration = Duration::from_millis(2);

// A relay that does not answer.

/// Time in which a connection must stand.
pub const CONNECT: Duration = Duration::from_secs(10);

/// Time in which something must come while an answer is awaited. A relay whose disk is slow takes
/// seconds.
pub const SILENCE: Duration = Duration::from_secs(60);

/// After so much silence, and then every so often, the system asks whether the relay still is there;
/// after so many questions without answer the connection is lost.
pub const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(20);
/// See [`KEEP_ALIVE_IDLE`].
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// See [`KEEP_ALIVE_IDLE`].
pub const KEEP_ALIVE_COUNT: u32 = 4;

/// First pause before a relay is tried again. It doubles with each failure ...
pub const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// ... up to this, so that a relay that comes back is found within half a minute.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A connection that has lasted so long was a good one: what fails then begins at [`FIRST_PAUSE`].
pub const GOOD_CONNECTION: Duration = Duration::from_secs(10);

// The agent.

/// Bytes of a session that wait for a relay, unless the user says otherwise: some seconds of a busy
/// host, or a third of a second of a fast disk.
pub const QUEUE_BYTES: u32 = 64 << 20;

/// Smallest packet that may be asked for: one page, as with LTTng.
pub const MIN_PACKET_BYTES: u64 = 4096;

/// When the agent is told to stop, a relay gets so long to take what is left.
pub const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How long a replay goes on without a relay before it is given up.
pub const REPLAY_PATIENCE: Duration = Duration::from_secs(60);

/// How often a progress bar is drawn anew.
pub const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

// The status socket.

/// Time in which someone who asks must take the answer.
pub const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest status that is read: some thousand sessions.
pub const MAX_STATUS_BYTES: u64 = 16 << 20;

/// Connections to it that are answered at the same time.
pub const MAX_STATUS_CONNECTIONS: usize = 16;
