//! The process that an event is of, as its contexts say.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::Scope;

/// A visitor that finds the process of an event in its contexts.
#[derive(Debug, Default)]
pub struct ProcessContext {
    is_context: bool,
    member: Option<ContextMember>,
    /// The id of the process, if there is one.
    pub pid: Option<i64>,
    /// The name of the process or thread; empty if there is none.
    pub name: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum ContextMember {
    Pid,
    Name,
}

impl ProcessContext {
    /// Forgets the process of the event before.
    pub fn clear(&mut self) {
        (self.is_context, self.member, self.pid) = (false, None, None);
        self.name.clear();
    }
}

impl Visitor for ProcessContext {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_context = matches!(scope, Scope::CommonContext | Scope::SpecificContext);
    }

    fn member(&mut self, name: &str) {
        self.member = match name {
            "vpid" | "pid" if self.is_context => Some(ContextMember::Pid),
            "procname" if self.is_context => Some(ContextMember::Name),
            _ => None,
        };
    }

    fn unsigned(&mut self, value: u64, _format: NumberFormat<'_>) {
        if let Some(ContextMember::Pid) = self.member {
            self.pid = i64::try_from(value).ok();
        }
    }

    fn signed(&mut self, value: i64, _format: NumberFormat<'_>) {
        if let Some(ContextMember::Pid) = self.member {
            self.pid = Some(value);
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if let Some(ContextMember::Name) = self.member {
            self.name.clear();
            self.name.extend_from_slice(bytes);
        }
    }
}
