//! Every limit in one place, each with its reason. What a peer may announce is bounded in
//! `relay-proto` and `viewer-proto`; what it may make the relay keep, here.

use std::time::Duration;

// What a session may have.

/// Maximum number of open streams of a session: more than any host has channels times CPUs.
pub const MAX_STREAMS: usize = 65_536;

/// Maximum number of open streams of all sessions together. Each takes about two kilobytes: what one of a
/// cluster's hosts may open, ten times.
pub const MAX_STREAMS_IN_ALL: usize = 1 << 20;

/// Number of streams of a data connection at which closed ones are looked for, first; then each time that there are
/// twice as many as were open. Fewer cost little.
pub const MIN_PRUNED_STREAMS: usize = 256;

/// Maximum number of open metadata streams of a session: a trace for each process that is traced at one time.
/// Their files stay open while there is room for them.
pub const MAX_METADATA_STREAMS: usize = 4096;

/// Maximum metadata of one trace in bytes, its padding included. Viewers take no more, and each reads all of it; that
/// of the largest kernel traces is some megabytes.
pub const MAX_METADATA_BYTES: u64 = 256 << 20;

/// Longest packet in bytes. Viewers refuse longer ones, and no tracer has sub-buffers of that size.
pub const MAX_PACKET_BYTES: u64 = 1 << 30;

/// Maximum number of packets of a stream that lack their index or their bytes. Real producers have one in flight;
/// those that pipeline have far fewer than this.
pub const MAX_PENDING_PACKETS: usize = 4096;

/// Default memory in bytes for early packets of all sessions together (`--reorder-memory`). One stream may take 32 MiB
/// of it (`--reorder-bytes`); producers that send out of order at all are a packet or two early.
pub const REORDER_MEMORY: u64 = 512 << 20;

/// Sessions that share that memory if each takes all it may: no session may take more than this part of
/// it, so that one alone cannot shorten the wait of the others.
pub const SESSIONS_IN_REORDER_MEMORY: u64 = 4;

/// Bytes that an early packet counts for besides its payload: its place in the order, and the allocation.
pub const EARLY_PACKET_BYTES: u64 = 128;

/// Packets of a stream that wait for an entry, beyond which entries are no longer written in larger
/// batches: a few kilobytes at a time are as cheap for each as more would be.
pub const MAX_READY_ENTRIES: usize = 256;

/// Runs of lost packets that a stream remembers, to tell a late index from a wrong one.
pub const MAX_GAPS: usize = 64;

/// Number of ended streams that stay listed for viewers that come later, not much exceeded:
/// with buffers per process, every process leaves some behind.
pub const MAX_ENDED_STREAMS: usize = 16_384;

/// Tracefiles of a stream that viewers can still be shown. Older ones stay on disk: without a limit
/// to their number there may be any number of them.
pub const MAX_TRACEFILES: usize = 65_536;

/// Beacons of a session that are put on disk in a second, in turns. Viewers on the network get them
/// from memory, at once; a directory is only followed on the host itself.
pub const BEACONS_ON_DISK: usize = 256;

/// Interval of the work that depends on time: beacons, idle files, lingering sessions.
pub const TICK: Duration = Duration::from_secs(1);

/// Time that the viewers of a session are held back before the beginning of a stream whose metadata has not come, plus
/// three periods of its live timer: LTTng sends metadata once in a period.
pub const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a session whose producer is gone lingers for packets in flight, while no data connection of it is open.
pub const DRAIN_GRACE: Duration = Duration::from_secs(10);

// Index files.

/// Number of attempts of the writer of an index file to lock it, [`LOCK_RETRY_INTERVAL`] apart, while readers hold the
/// lock. They hold it while they read a few kilobytes; for one that holds it longer the writer does not wait.
pub const LOCK_TRIES: u32 = 10;
/// See [`LOCK_TRIES`].
pub const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(100);

/// Entries of an index file that are read at once for a viewer: two kilobytes.
pub const ENTRIES_READ: usize = 32;

/// Tracefiles of a stream of which a viewer has been given packets and may ask for them though it has
/// been given some of the next: as many as it may ask indexes at once, should each have one packet.
pub const MAX_TRACEFILES_OWED: usize = 64;

/// Maximum number of removed tracefiles that are skipped at once for a viewer, each with some system calls. Then the
/// viewer is told to ask again, and other viewers have their turn.
pub const MAX_SKIPPED_TRACEFILES: usize = 16;

// Connections.

/// Connections per port. Each takes a file descriptor and a few kilobytes.
pub const MAX_CONNECTIONS: usize = 8192;

/// Connections per port from one address, or for IPv6 from one network: half of all, so that no peer
/// alone can take every place. A cluster may be behind one address.
pub const MAX_CONNECTIONS_OF_ONE: usize = MAX_CONNECTIONS / 2;

/// File calls that may block, of all viewers together: each takes a thread while it is in flight, and
/// waits for a disk.
pub const MAX_FILE_CALLS: usize = 256;

/// File calls that may block, of the viewers of one session: a session whose disk hangs leaves the others theirs.
pub const MAX_FILE_CALLS_OF_SESSION: usize = 8;

/// Time that a viewer waits until one of those calls has returned, so that it can make its own. Then
/// its connection is closed.
pub const FILE_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Threads of the live port: those calls, the event loops, and some more for calls of viewers that
/// found a permit at the same moment.
pub const MAX_LIVE_THREADS: usize = 2 * MAX_FILE_CALLS;

/// How often each worker is asked for a heartbeat.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// A worker that has missed so many heartbeats hangs in a file call, most likely. New connections go
/// to others. A disk that is only slow takes less for a megabyte.
pub const MAX_MISSED_HEARTBEATS: u32 = 4;

/// Workers that are started in place of those that hang. Each is a thread.
pub const MAX_REPLACEMENT_WORKERS: usize = 16;

/// A round of beacons and idle files that takes longer hangs in a file call: the next round begins
/// without it.
pub const TICK_TIMEOUT: Duration = Duration::from_secs(5);

/// Commands that may be refused on a connection that goes on. Producers give up at the first; each
/// is logged.
pub const MAX_REFUSALS: usize = 100;

/// Connections that the system keeps until they are accepted: a whole cluster may start at once.
pub const BACKLOG: u32 = 4096;

/// Timeout of the handshake of a peer. A data connection need not: real producers
/// open it long before they use it.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the rest of a command that has begun, and of the next bytes of a packet or of metadata.
/// Between packets and commands a connection may be silent for days.
pub const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of the rest of a viewer's command that has begun. Commands are short.
pub const VIEWER_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a peer that does not read the next bytes of a reply.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of replies that are collected before they are sent.
pub const REPLY_BYTES: usize = 64 << 10;

/// Bytes that are read at once on a data connection: as many as are left of the packet, within these bounds. Large
/// reads save calls when packets are large, and cost cache when they are small.
pub const MIN_RECEIVED_BYTES: usize = 64 << 10;
/// See [`MIN_RECEIVED_BYTES`].
pub const MAX_RECEIVED_BYTES: usize = 1 << 20;

/// Interval between reads of a data connection whose small packets are coalesced. Viewers get them later by
/// so much, and a producer whose relay is killed loses so much of what was acknowledged.
pub const COALESCE_INTERVAL: Duration = Duration::from_millis(1);

/// Largest packet, in bytes, that is coalesced. Each larger one is worth a read of its own.
pub const MAX_COALESCED_PACKET: u32 = 32 << 10;

/// Reads in a row that each brought a small packet, after which packets are coalesced.
pub const COALESCE_AFTER_READS: u32 = 8;

/// How long the socket of a peer that sends its next command at once is busy-polled before the thread sleeps:
/// a producer writes a packet in between.
pub const SPIN_DURATION: Duration = Duration::from_micros(200);

/// Longest wait for a command that counts as fast. It includes the time that a wake-up takes.
pub const SPIN_THRESHOLD: Duration = Duration::from_micros(250);

/// Fast waits in a row after which a socket is busy-polled.
pub const SPIN_AFTER_FAST_WAITS: i32 = 16;

/// Further fast waits that are needed after another thread had need of the processor.
pub const SPIN_COOLDOWN: i32 = 32;

/// Pieces in which packets are read for a viewer: while it takes one, the next is read. Smaller packets
/// leave with the replies around them.
pub const SENT_BYTES: usize = 64 << 10;

/// Most metadata in one answer. The viewer asks again at once.
pub const METADATA_BYTES: u64 = 256 << 10;

/// Bytes of messages that are collected for a push connection before they are sent; no more are collected until the
/// viewer has read them.
pub const PUSHED_BYTES: usize = 16 << 10;

/// Bytes that the system keeps of them until the viewer has read them. By default it would keep megabytes, all of them
/// out of date by then.
pub const PUSHED_BUFFER: usize = 64 << 10;

/// Minimum interval between messages to a push connection. The first leaves at once, the next after this time, with all
/// that has come meanwhile: the beacons of many idle streams come together, and one by one each would cost as
/// much as all of them.
pub const PUSH_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of bytes that a viewer may send on its push connection in a [`PUSH_INPUT_INTERVAL`]: 256 messages,
/// each of which may cause every stream to be looked at. `test-live` sends 20 at most.
pub const MAX_PUSH_INPUT: usize = 2 << 10;
/// See [`MAX_PUSH_INPUT`].
pub const PUSH_INPUT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the end of a rotation is looked for: nothing of a recording is pushed while it goes over to another
/// chunk. That takes the producer a few milliseconds.
pub const ROTATION_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of connections to the status endpoint: a few programs scrape it, each on one. More would only cost
/// others their file descriptors.
pub const MAX_HTTP_CONNECTIONS: usize = 64;

/// Longest head of an HTTP request in bytes. Ours are a line long; what browsers and proxies add fits. No less
/// is possible with the library.
pub const MAX_HTTP_HEAD: usize = 8 << 10;

/// Timeout of the head of an HTTP request, the first and each after it: a client that scrapes every minute keeps its
/// connection.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// Silence of a peer before the system probes whether it is still there, and the interval of further probes.
pub const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);
/// See [`KEEP_ALIVE_IDLE`].
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// `TCP_USER_TIMEOUT` of producers' connections: a host that is gone is noticed at the first probe that
/// it leaves unanswered for as long as this, not after all nine. Restarts of network equipment on the way
/// are shorter.
pub const PRODUCER_USER_TIMEOUT: Duration = Duration::from_secs(60);

// Stopping.

/// Silence of a connection after which it has nothing more to send, when the relay stops.
pub const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_millis(50);

/// Time that all connections together get for that.
pub const DRAIN_TIMEOUT: Duration = Duration::from_millis(800);

/// Time for closing a session when the relay stops. Then another thread goes on with the sessions behind it; when all
/// others are closed, the session gets so long again.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

// What is around the relay.

/// Time without a heartbeat after which a set of threads is unhealthy. lttng-relayd takes as long.
pub const HEALTH_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(20);

/// Timeout of a client of the health socket: others wait for their turn.
pub const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause after the system has refused a connection to the health socket.
pub const HEALTH_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Time that a relay that stops waits until deleted chunks have been unlinked. The next start completes what is left.
pub const DELETION_TIMEOUT: Duration = Duration::from_secs(10);

/// Depth of directories below the output that are looked through at start for traces to repair. Deeper than
/// any base path that fits in a stream's path.
pub const MAX_OUTPUT_DEPTH: usize = 128;

// A disk that is full.

/// Interval of attempts to write while producers are paused. An attempt costs each paused connection a system call or
/// two, and producers go on at most this late once there is space.
pub const SPACE_RETRY_INTERVAL: Duration = Duration::from_millis(250);

// Trace files.

/// Smallest pool of trace files that may be asked for, as with lttng-relayd. Each thread that
/// writes needs two at a time, and viewers theirs.
pub const MIN_POOL: i64 = 100;

/// Time without a write after which a trace file is closed, at most twice as long. The next write opens it again. Live
/// streams that are busy write more often.
pub const IDLE_FILE_TIMEOUT: Duration = Duration::from_secs(5);
