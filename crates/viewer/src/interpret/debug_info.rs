//! Functions and source lines of the addresses in events of LTTng-UST and of our own rings, for
//! `--debug-info`.
//!
//! What is mapped in a process is known by events before, so events have to come in order of time,
//! also those that are not shown. Nothing here is called without `--debug-info`.

use std::sync::Arc;

use ctf::decode::{Event, FieldError, NumberFormat, Visitor};
use ctf::model::{FieldClass, Integer, Structure};
use debug_info::mappings::{BuildId, DebugLink, MappingEvent};
use debug_info::{Past, ProcessKey, ProcessTable, SearchOptions, Symbolizer};

pub use debug_info::{EventLocations, Location};

use super::environment::Environment;
use super::kind::is_function_class;
use crate::attach::TraceKey;
use crate::keys::RecentMap;
use crate::sink::Origin;

/// Largest number of bytes of an array or text that is collected.
const MAX_BYTES: usize = 8192;

/// Knows what is mapped in processes, and finds what addresses are.
pub struct DebugInfo {
    processes: ProcessTable,
    symbolizer: Symbolizer,
    classes: RecentMap<ClassRole>,
    fields: AddressFields,
    locations: EventLocations,
    unknown: Arc<Location>,
}

/// What events of a class have to do with addresses.
#[derive(Debug, Clone, Copy)]
struct ClassRole {
    trace: TraceKey,
    mapping: Option<MappingKind>,
    has_ip: bool,
    is_function: bool,
}

/// What an event says about mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MappingKind {
    Restart,
    Map,
    Unmap,
    Build { is_required: bool },
    Link,
}

impl MappingKind {
    fn of(class: &str) -> Option<Self> {
        Some(match class {
            "lttng_ust_statedump:start" => Self::Restart,
            "lttng_ust_statedump:bin_info"
            | "lttng_ust_lib:load"
            | "lttng_ust_dl:dlopen"
            | "lttng_ust_dl:dlmopen" => Self::Map,
            // Not `dlclose`: others may have opened the library as well.
            "lttng_ust_lib:unload" => Self::Unmap,
            "lttng_ust_statedump:build_id" => Self::Build { is_required: true },
            "lttng_ust_lib:build_id" | "lttng_ust_dl:build_id" => {
                Self::Build { is_required: false }
            }
            "lttng_ust_statedump:debug_link"
            | "lttng_ust_lib:debug_link"
            | "lttng_ust_dl:debug_link" => Self::Link,
            _ => return None,
        })
    }
}

impl DebugInfo {
    /// Looks for files as `options` say. `shows_directories`: paths are shown whole.
    #[must_use]
    pub fn new(options: SearchOptions, shows_directories: bool) -> Self {
        Self {
            processes: ProcessTable::default(),
            symbolizer: Symbolizer::new(options, shows_directories),
            classes: RecentMap::default(),
            fields: AddressFields::default(),
            locations: EventLocations::default(),
            unknown: Arc::default(),
        }
    }

    /// Keeps what was mapped and is gone, to [locate](Self::locate) what is in events of any time.
    /// Called before the first event.
    #[must_use]
    pub fn with_past(mut self) -> Self {
        self.processes = ProcessTable::new(Past::Kept);
        self
    }

    /// Learns what is mapped in the process of an event, whether the event is shown or not.
    ///
    /// # Errors
    /// If its fields cannot be decoded.
    pub fn learn(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), FieldError> {
        let Some(kind) = self.role(event, origin).and_then(|role| role.mapping) else {
            return Ok(());
        };
        self.fields.clear();
        event.visit(&mut self.fields)?;
        let key = self.process(event, origin);
        if let Some(mapping) = self.fields.mapping(kind) {
            let time = event.time().unwrap_or(i64::MIN);
            self.processes.apply(key, time, mapping);
        }
        Ok(())
    }

    /// Finds what the addresses in an event are.
    ///
    /// # Errors
    /// If its fields cannot be decoded.
    pub fn locate(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), FieldError> {
        self.locations = EventLocations::default();
        let Some(role) = self.role(event, origin) else {
            return Ok(());
        };
        self.fields.clear();
        match (role.is_function, role.has_ip) {
            (true, _) => event.visit(&mut self.fields)?,
            (false, true) => event.visit_contexts(&mut self.fields)?,
            (false, false) => return Ok(()),
        }
        let key = self.process(event, origin);
        let time = event.time().unwrap_or(i64::MAX);
        if role.has_ip {
            let ip = self.location(key, time, self.fields.ip);
            self.locations.ip = ip.or_else(|| Some(Arc::clone(&self.unknown)));
        }
        if role.is_function {
            self.locations.function = self.location(key, time, self.fields.function);
            self.locations.call_site = self.location(key, time, self.fields.call_site);
        }
        Ok(())
    }

    /// What the addresses in the event are that was [located](Self::locate) last.
    #[must_use]
    pub fn locations(&self) -> &EventLocations {
        &self.locations
    }

    /// Takes the warnings about files that are not used.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.symbolizer.take_warnings()
    }

    /// Forgets a trace that has ended.
    pub fn forget_trace(&mut self, trace: TraceKey) {
        self.processes.forget_trace(trace.0);
        self.classes.retain(|_, role| role.trace != trace);
    }

    #[inline]
    fn role(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Option<ClassRole> {
        let key = event.class().ordinal() as u64;
        let role = self.classes.get_or_insert(key, || {
            let name = event.class().name().unwrap_or_default();
            let context = event.stream_class().event_context();
            ClassRole {
                trace: origin.trace.key,
                mapping: MappingKind::of(name),
                has_ip: context.is_some_and(has_code_address),
                is_function: is_function_class(name),
            }
        });
        role.copied()
    }

    /// The process of the event whose fields have been visited.
    fn process(&self, event: &Event<'_>, origin: Origin<'_>) -> ProcessKey {
        let process = self.fields.vpid.or(self.fields.pid);
        ProcessKey {
            trace: origin.trace.key.0,
            process: process.or_else(|| Environment::of(event.trace()).process),
        }
    }

    fn location(
        &mut self,
        process: ProcessKey,
        time: i64,
        address: Option<u64>,
    ) -> Option<Arc<Location>> {
        let mapping = self.processes.find(process, time, address?)?;
        self.symbolizer.locate(mapping, address?)
    }
}

/// Whether events with this common context say where in a program they were recorded, in fields of
/// the classes that LTTng gives them.
fn has_code_address(context: &Structure) -> bool {
    let number = |name: &str| {
        let mut members = context.members.iter();
        match &members.find(|member| *member.name == *name)?.class {
            FieldClass::Integer(class) if class.labels.is_none() => Some(class),
            _ => None,
        }
    };
    let is_vpid = |class: &Integer| class.signed && class.bits == 32;
    let has_own = context.members.iter().any(|of| &*of.name == "debug_info");
    number("ip").is_some_and(|class| !class.signed)
        && number("vpid").is_some_and(is_vpid)
        && !has_own
}

/// The bytes that pairs of hexadecimal digits stand for. None if they are something else.
fn from_hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    let is_whole = text.len().is_multiple_of(2) && text.len() <= MAX_BYTES;
    is_whole.then(|| text.chunks(2).map(byte).collect())?
}

/// A field that says something about addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Vpid,
    Pid,
    Ip,
    Function,
    CallSite,
    Base,
    Size,
    IsPic,
    Path,
    BuildId,
    Crc,
    FileName,
}

/// The fields of one event that say something about addresses.
#[derive(Debug, Default)]
struct AddressFields {
    vpid: Option<i64>,
    pid: Option<i64>,
    ip: Option<u64>,
    function: Option<u64>,
    call_site: Option<u64>,
    base: Option<u64>,
    size: Option<u64>,
    is_pic: Option<u64>,
    path: Vec<u8>,
    build_id: Vec<u8>,
    crc: Option<u64>,
    file_name: Vec<u8>,
    in_payload: bool,
    depth: usize,
    member: Option<Member>,
}

impl AddressFields {
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// What an event of this kind says, if it has all fields for it.
    fn mapping(&mut self, kind: MappingKind) -> Option<MappingEvent> {
        Some(match kind {
            MappingKind::Restart => MappingEvent::Restart,
            MappingKind::Map => MappingEvent::Map {
                base: self.base?,
                size: self.size?,
                path: std::mem::take(&mut self.path),
                // What is loaded later is always a shared object.
                is_pic: self.is_pic.is_none_or(|is_pic| is_pic == 1),
            },
            MappingKind::Unmap => MappingEvent::Unmap(self.base?),
            MappingKind::Build { is_required } => {
                let bytes = std::mem::take(&mut self.build_id);
                MappingEvent::Build(self.base?, BuildId { bytes, is_required })
            }
            MappingKind::Link => {
                let name = std::mem::take(&mut self.file_name);
                let crc = u32::try_from(self.crc?).ok()?;
                MappingEvent::Link(self.base?, DebugLink { name, crc })
            }
        })
    }

    fn push(&mut self, bytes: &[u8]) {
        let text = match self.member {
            Some(Member::Path) => &mut self.path,
            Some(Member::FileName) => &mut self.file_name,
            Some(Member::BuildId) => &mut self.build_id,
            _ => return,
        };
        if text.len() + bytes.len() <= MAX_BYTES {
            text.extend_from_slice(bytes);
        }
    }
}

impl Visitor for AddressFields {
    visit_depth!();

    fn member(&mut self, name: &str) {
        if self.depth != 1 {
            return;
        }
        self.member = match (self.in_payload, name) {
            (false, "vpid") => Some(Member::Vpid),
            (false, "pid") => Some(Member::Pid),
            (false, "ip") => Some(Member::Ip),
            (true, "addr") => Some(Member::Function),
            (true, "call_site") => Some(Member::CallSite),
            (true, "baddr") => Some(Member::Base),
            (true, "memsz") => Some(Member::Size),
            (true, "is_pic") => Some(Member::IsPic),
            (true, "path") => Some(Member::Path),
            (true, "build_id") => Some(Member::BuildId),
            (true, "crc") => Some(Member::Crc),
            (true, "filename") => Some(Member::FileName),
            _ => None,
        };
    }

    fn unsigned(&mut self, value: u64, _format: NumberFormat<'_>) {
        if self.depth == 2 && self.member == Some(Member::BuildId) {
            // A byte that is none makes it another id.
            self.push(&[u8::try_from(value).unwrap_or(0)]);
        }
        if self.depth != 1 {
            return;
        }
        match self.member {
            Some(Member::Vpid) => self.vpid = i64::try_from(value).ok(),
            Some(Member::Pid) => self.pid = i64::try_from(value).ok(),
            Some(Member::Ip) => self.ip = Some(value),
            Some(Member::Function) => self.function = Some(value),
            Some(Member::CallSite) => self.call_site = Some(value),
            Some(Member::Base) => self.base = Some(value),
            Some(Member::Size) => self.size = Some(value),
            Some(Member::IsPic) => self.is_pic = Some(value),
            Some(Member::Crc) => self.crc = Some(value),
            _ => {}
        }
    }

    fn signed(&mut self, value: i64, _format: NumberFormat<'_>) {
        match self.member {
            Some(Member::Vpid) if self.depth == 1 => self.vpid = Some(value),
            Some(Member::Pid) if self.depth == 1 => self.pid = Some(value),
            _ => {}
        }
    }

    fn boolean(&mut self, value: bool) {
        if self.depth == 1 && self.member == Some(Member::IsPic) {
            self.is_pic = Some(value.into());
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.depth != 1 {
            return;
        }
        // Rings have no arrays of bytes.
        match (self.member, from_hexadecimal(bytes)) {
            (Some(Member::BuildId), Some(id)) => self.push(&id),
            _ => self.push(bytes),
        }
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        if self.depth == 1 {
            self.push(bytes);
        }
    }
}
