//! What the trace of a process says about the process, and its session.

use ctf::model::{EnvironmentValue, Uuid};
use ctf::write::{TraceClock, TraceDeclaration};
use jiff::Timestamp;
use relay_proto::session::TraceFormat;

use super::directory::DirectoryName;
use super::producer::Producer;
use super::{Context, RingSettings};
use crate::limits::MAX_NAME_BYTES;
use crate::queue::SessionDescription;

/// Directory of the trace in its session, and the first part of the names of its streams.
pub(super) const PATH: &str = "ring";
pub(super) const CHANNEL: &str = "ring";
/// Id of the only stream class.
pub(super) const STREAM_CLASS: u32 = 0;

/// Longest part of a session's name that is the name of the program, in bytes.
const MAX_PROGRAM_BYTES: usize = MAX_NAME_BYTES - 16;

/// The identity of a traced process in its trace.
#[derive(Debug)]
pub(super) struct TraceIdentity {
    pub(super) directory: DirectoryName,
    pub(super) pid: i32,
    /// Name of the session: that of the program, and the process id.
    pub(super) session: String,
    /// Path of the session on the relay. Another consumer may have opened one of the same name in
    /// this second, and relays tell them apart by the second only.
    base_path: String,
    pub(super) declaration: TraceDeclaration,
    /// Whether the times are of the running system's clock.
    pub(super) is_of_this_boot: bool,
}

impl TraceIdentity {
    pub(super) fn of(producer: &mut Producer, context: &Context) -> Self {
        let name = producer.name();
        let directory = producer.directory().name().clone();
        let header = producer.meta().header();
        let boot = Some(Uuid(header.boot_id)).filter(|id| id.0 != [0; 16]);
        let own = context.clock.uuid;
        let is_of_this_boot = boot.is_none() || own.is_none() || boot == own;
        let clock = if is_of_this_boot {
            context.clock
        } else {
            // A directory on a disk, from before the last boot.
            let offset = u64::try_from(header.clock_offset).unwrap_or(0);
            TraceClock {
                uuid: boot,
                offset_seconds: i64::try_from(offset / 1_000_000_000).unwrap_or(0),
                offset_nanoseconds: offset % 1_000_000_000,
            }
        };
        // Not from the process: an agent that was restarted sends the rest of it as another trace.
        let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
        let mut declaration = TraceDeclaration::new(uuid, "trace-ring");
        declaration.clock = clock;
        let text = |text: &str| EnvironmentValue::Text(text.into());
        let program = String::from_utf8_lossy(&header.program);
        declaration.environment = vec![
            ("hostname".to_owned(), text(&context.settings.host)),
            ("procname".to_owned(), text(&name)),
            (
                "vpid".to_owned(),
                EnvironmentValue::Integer(header.pid.into()),
            ),
            ("program".to_owned(), text(&program)),
        ];
        let session = format!("{}-{}", file_name(&name), header.pid);
        let created = Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        let [a, b, ..] = uuid.0;
        Self {
            directory,
            base_path: format!("{session}-{created}-{a:02x}{b:02x}"),
            pid: i32::try_from(header.pid).unwrap_or(0),
            session,
            declaration,
            is_of_this_boot,
        }
    }

    /// Returns the description of the process's session.
    pub(super) fn session(&self, settings: &RingSettings) -> SessionDescription {
        let (tracefile_size, tracefile_count) = settings.tracefiles;
        SessionDescription {
            name: self.session.clone(),
            host: settings.host.clone(),
            base_path: match settings.base_path.as_str() {
                "" => self.base_path.clone(),
                path => format!("{path}/{}", self.base_path),
            },
            live_timer: Some(settings.live_timer).filter(|_| settings.is_live),
            trace_format: TraceFormat::Ctf1,
            tracefile_size,
            tracefile_count,
        }
    }
}

/// Returns a name that is a file name on every relay.
fn file_name(name: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() || "._-".contains(character) {
            character
        } else {
            '_'
        }
    };
    let mut name: String = name.chars().map(plain).collect();
    name.truncate(MAX_PROGRAM_BYTES);
    if name.starts_with('.') || name.is_empty() {
        name.insert(0, '_');
    }
    name
}
