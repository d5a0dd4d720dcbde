//! Which fields mean something to this format, and what they said.

/// Whose an event is, as its contexts say.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    vpid: Option<i64>,
    vtid: Option<i64>,
    pid: Option<i64>,
    tid: Option<i64>,
    pub(crate) cpu: Option<i64>,
    pub(crate) procname: Vec<u8>,
}

impl Identity {
    pub(crate) fn process(&self) -> Option<i64> {
        self.vpid.or(self.pid)
    }

    pub(crate) fn thread(&self) -> Option<i64> {
        self.vtid.or(self.tid)
    }

    /// Where the context of this name goes, if it says whose the event is.
    pub(crate) fn place(&mut self, name: Member) -> Option<&mut Option<i64>> {
        match name {
            Member::Vpid => Some(&mut self.vpid),
            Member::Vtid => Some(&mut self.vtid),
            Member::Pid => Some(&mut self.pid),
            Member::Tid => Some(&mut self.tid),
            Member::Cpu => Some(&mut self.cpu),
            _ => None,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.procname.clear();
        for name in [
            Member::Vpid,
            Member::Vtid,
            Member::Pid,
            Member::Tid,
            Member::Cpu,
        ] {
            if let Some(place) = self.place(name) {
                *place = None;
            }
        }
    }
}

/// Fields of the generic classes of our own producers.
#[derive(Debug, Default)]
pub(crate) struct OwnFields {
    pub(crate) phase: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) category: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) level: Vec<u8>,
    pub(crate) file: Vec<u8>,
    pub(crate) duration: u64,
    pub(crate) flow: u64,
    pub(crate) line: u64,
    pub(crate) span: u64,
    pub(crate) parent: u64,
}

impl OwnFields {
    /// A record without phase is an instant.
    pub(crate) fn phase(&self) -> &[u8] {
        if self.phase.is_empty() {
            b"i"
        } else {
            &self.phase
        }
    }

    pub(crate) fn text(&mut self, of: Member) -> Option<&mut Vec<u8>> {
        match of {
            Member::Phase => Some(&mut self.phase),
            Member::Name => Some(&mut self.name),
            Member::Category => Some(&mut self.category),
            Member::Target => Some(&mut self.target),
            Member::Message => Some(&mut self.message),
            Member::Level => Some(&mut self.level),
            Member::File => Some(&mut self.file),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self, of: Member) -> Option<&mut u64> {
        match of {
            Member::Duration => Some(&mut self.duration),
            Member::Flow => Some(&mut self.flow),
            Member::Line => Some(&mut self.line),
            Member::Span => Some(&mut self.span),
            Member::Parent => Some(&mut self.parent),
            _ => None,
        }
    }

    pub(crate) fn clear(&mut self) {
        for of in Member::OWN {
            if let Some(text) = self.text(of) {
                text.clear();
            }
            if let Some(number) = self.number(of) {
                *number = 0;
            }
        }
    }
}

/// Members that are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Member {
    #[default]
    Other,
    Vpid,
    Vtid,
    Pid,
    Tid,
    Cpu,
    Procname,
    Address,
    Phase,
    Name,
    Category,
    Target,
    Message,
    Level,
    File,
    Duration,
    Flow,
    Line,
    Span,
    Parent,
}

impl Member {
    const OWN: [Self; 12] = [
        Self::Phase,
        Self::Name,
        Self::Category,
        Self::Target,
        Self::Message,
        Self::Level,
        Self::File,
        Self::Duration,
        Self::Flow,
        Self::Line,
        Self::Span,
        Self::Parent,
    ];

    pub(crate) fn of_context(name: &str) -> Self {
        match name {
            "vpid" => Self::Vpid,
            "vtid" => Self::Vtid,
            "pid" => Self::Pid,
            "tid" => Self::Tid,
            "cpu_id" => Self::Cpu,
            "procname" => Self::Procname,
            _ => Self::Other,
        }
    }

    pub(crate) fn of_own(name: &str) -> Self {
        match name {
            "ph" => Self::Phase,
            "name" => Self::Name,
            "cat" => Self::Category,
            "target" => Self::Target,
            "message" => Self::Message,
            "level" => Self::Level,
            "file" => Self::File,
            "dur_ns" => Self::Duration,
            "flow_id" => Self::Flow,
            "line" => Self::Line,
            "span" => Self::Span,
            "parent" => Self::Parent,
            _ => Self::Other,
        }
    }
}
