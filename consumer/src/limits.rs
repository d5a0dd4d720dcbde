//! All limits and timeouts of the agent, each with its reason.

use std::time::Duration;

// What a session may have.

/// Metadata of all traces of a session, in bytes. It is kept, because a relay needs it again after a reconnect.
/// The largest metadata, that of tracers of whole kernels, has a few megabytes.
pub const MAX_METADATA_BYTES: usize = 64 << 20;

/// Longest packet, in bytes: relays and viewers refuse longer ones.
pub const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Tracefiles of a stream that a relay is asked to keep. Relays of LTTng allocate memory by the number, for
/// each stream, and crash if it is large. They also crash if the size of tracefiles is limited and their
/// number is not: then they are sent this number, after which the oldest file is replaced.
pub const MAX_TRACEFILES: u64 = 65_536;

/// Host and base path together, in bytes: relays of LTTng crash with more than 4096.
pub const MAX_PATH_BYTES: usize = 3072;

/// Longest session name, in bytes. The relay appends a date to it, and makes a file name of that.
pub const MAX_NAME_BYTES: usize = 200;

/// Longest name of a host, in bytes: that of a file.
pub const MAX_HOST_BYTES: usize = 255;

/// Longest path of a trace, in bytes: what the protocol allows, less what the relay appends.
pub const MAX_TRACE_PATH_BYTES: usize = 254;
/// Longest name of a stream, in bytes; see [`MAX_TRACE_PATH_BYTES`].
pub const MAX_CHANNEL_BYTES: usize = 240;

/// Longest packet that the consumer makes for one event, in bytes: twice the default length of a line of the
/// `tldrs` daemon.
pub const MAX_EVENT_PACKET_BYTES: usize = 32 << 20;

/// Time between beacons of a stream while no stream of this process has events: viewers may be merging
/// it with streams of other hosts.
pub const IDLE_BEACON_INTERVAL: Duration = Duration::from_secs(1);

/// A trace that is opened again within this time after its last client has disconnected stays in its
/// session: a build starts its programs one after another.
pub const REOPEN_GRACE_PERIOD: Duration = Duration::from_secs(1);

// Commands and packets in flight to a relay.

/// Commands that are sent before the reply to the first of them. A relay handles one in some ten microseconds,
/// so this covers a round trip of a few milliseconds.
pub const MAX_COMMANDS_IN_FLIGHT: usize = 256;

/// Bytes of packets that may wait to be written. Beyond that, no further packet is queued for writing.
pub const MAX_WRITE_BYTES: usize = 1 << 20;

/// Slices of one vectored write: a packet is two of them.
pub const MAX_WRITE_SLICES: usize = 64;

/// Bytes of commands that may wait to be written. Beyond that, no metadata is appended.
pub const MAX_BUFFERED_COMMAND_BYTES: usize = 256 << 10;

/// Largest piece in which metadata is sent, in bytes. A relay takes each into memory as a whole; but
/// viewers that ask between two pieces may get a part of a declaration, so most metadata should be one
/// piece.
pub const MAX_METADATA_PIECE_BYTES: usize = 1 << 20;

/// While packets remain to be sent, the relay is asked whether it has all packets of a stream after this number
/// of packets ...
pub const CONFIRM_AFTER_PACKETS: u64 = 32;
/// ... or this number of bytes of the stream. When nothing remains to be sent, it is asked at once.
pub const CONFIRM_AFTER_BYTES: u64 = 4 << 20;

/// Time after which the relay is asked again if it did not have all packets.
pub const CONFIRM_RETRY_INTERVAL: Duration = Duration::from_millis(2);

// A relay that does not reply.

/// How long connecting to a relay may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a reply may take. A relay with a slow disk takes seconds.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// TCP keep-alive: time without traffic after which the kernel probes the relay. The loss of a
/// relay's host is noticed after a minute.
pub const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(20);
/// TCP keep-alive: time between two probes.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// TCP keep-alive: number of probes without an answer after which the connection is lost.
pub const KEEP_ALIVE_COUNT: u32 = 4;

/// First delay before reconnecting. It doubles with each failure ...
pub const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// ... up to this, so that a restarted relay is found within half a minute.
pub const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(30);

/// A connection that has lasted this long resets the backoff: the next delay is
/// [`MIN_RECONNECT_DELAY`] again.
pub const STABLE_CONNECTION_TIME: Duration = Duration::from_secs(10);

// The agent.

/// Bytes of a session that wait for a relay, unless configured otherwise: some seconds of a busy
/// host, or a third of a second of a fast disk.
pub const DEFAULT_QUEUE_BYTES: u32 = 64 << 20;

/// Smallest packet that may be asked for, in bytes: one page, as with LTTng.
pub const MIN_PACKET_BYTES: u64 = 4096;

/// How long queued packets are still sent when the agent stops, unless configured otherwise.
pub const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a replay may be without a relay before it is given up, unless configured otherwise.
pub const DEFAULT_REPLAY_RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two redraws of a progress bar.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

// The status socket.

/// How long a client of the status socket may take to receive the answer.
pub const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest status that is read, in bytes: some thousand sessions.
pub const MAX_STATUS_BYTES: u64 = 16 << 20;

/// Connections to the status socket that are answered at the same time.
pub const MAX_STATUS_CONNECTIONS: usize = 16;
