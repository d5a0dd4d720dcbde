//! What is taken from an event's fields. The buffers are kept from event to event.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};
use serde::de::IgnoredAny;

use super::super::json_fields::{Fields, Progress, Scopes};
use super::super::json_text::{self, integer, lossy_string, string};
use super::own::{Identity, Member, OwnFields};

/// What an element of `args` says next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Argument {
    #[default]
    Other,
    Key,
    Nil,
    Flag,
    Value,
}

/// Takes what is needed of one event.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) identity: Identity,
    pub(crate) own: OwnFields,
    /// `addr` of the payload.
    pub(crate) address: u64,
    /// Members of a JSON object, from the payload.
    arguments: Vec<u8>,
    /// Likewise, from contexts.
    context: Vec<u8>,
    /// Whether `context` says more than whose the event is.
    context_shown: bool,
    /// Whether the event is of one of our own generic classes.
    is_own: bool,
    in_payload: bool,
    depth: usize,
    member: Member,
    argument: Argument,
    progress: Progress,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            identity: Identity::default(),
            own: OwnFields::default(),
            address: 0,
            arguments: Vec::new(),
            context: Vec::new(),
            context_shown: false,
            is_own: false,
            in_payload: false,
            depth: 0,
            member: Member::Other,
            argument: Argument::Other,
            progress: Progress::new(Scopes::Flat, true),
        }
    }
}

impl Gather {
    /// Forgets the event before.
    pub(crate) fn begin(&mut self, is_own: bool) {
        self.identity.clear();
        self.own.clear();
        self.address = 0;
        self.arguments.clear();
        self.context.clear();
        self.context_shown = false;
        self.is_own = is_own;
        self.in_payload = false;
        self.depth = 0;
        self.progress = Progress::new(Scopes::Flat, true);
    }

    /// Writes the members of `args`.
    pub(crate) fn write_arguments(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        let name = |name: &str, out: &mut Vec<u8>| {
            if out.len() > begin {
                out.push(b',');
            }
            string(name, out);
            out.push(b':');
        };
        if self.is_own {
            for (member, text) in [("level", &self.own.level), ("file", &self.own.file)] {
                if !text.is_empty() {
                    name(member, out);
                    lossy_string(text, out);
                }
            }
            if self.own.line > 0 {
                name("line", out);
                integer(self.own.line, out);
            }
            for (member, id) in [("span", self.own.span), ("parent", self.own.parent)] {
                if id > 0 {
                    name(member, out);
                    out.extend_from_slice(b"\"0x");
                    super::hex_number(id, out);
                    out.push(b'"');
                }
            }
        }
        if !self.arguments.is_empty() {
            if out.len() > begin {
                out.push(b',');
            }
            out.extend_from_slice(&self.arguments);
        }
        if self.context_shown && !self.is_own {
            if out.len() > begin {
                out.push(b',');
            }
            out.extend_from_slice(b"\"context\":{");
            out.extend_from_slice(&self.context);
            out.push(b'}');
        }
    }

    /// Fields of our own classes are written by themselves.
    fn writes_own(&self) -> bool {
        self.is_own && self.in_payload
    }

    fn write(&mut self, write: impl FnOnce(&mut Fields<'_>)) {
        if self.writes_own() {
            return;
        }
        let out = if self.in_payload {
            &mut self.arguments
        } else {
            &mut self.context
        };
        let mut fields = Fields::new(out, self.progress);
        write(&mut fields);
        self.progress = fields.progress();
    }

    /// In an element of `args`.
    fn is_argument(&self) -> bool {
        self.writes_own() && self.depth == 3
    }

    fn argument(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self.argument {
            Argument::Nil => self.arguments.extend_from_slice(b"null"),
            Argument::Flag | Argument::Value => write(&mut self.arguments),
            Argument::Key | Argument::Other => {}
        }
    }

    fn integer(&mut self, value: i128, labels: Option<&Labels>) {
        if self.depth != 1 {
            return;
        }
        if !self.in_payload {
            if let Some(place) = self.identity.place(self.member) {
                *place = i64::try_from(value).ok();
            }
            return;
        }
        let number = u64::try_from(value).unwrap_or(0);
        if self.member == Member::Address {
            self.address = number;
        }
        if !self.is_own {
            return;
        }
        if let Some(place) = self.own.number(self.member) {
            *place = number;
        }
        if let (Some(text), Some(labels)) = (self.own.text(self.member), labels) {
            match labels.of(value).next() {
                Some(label) => text.extend_from_slice(label.as_bytes()),
                // A phase is the character that it stands for.
                None => text.extend(u8::try_from(value).ok().filter(u8::is_ascii_graphic)),
            }
        }
    }
}

/// Writes a text, or the object or array that it is the text of.
fn text_or_structure(bytes: &[u8], out: &mut Vec<u8>) {
    let begins = bytes
        .first()
        .is_some_and(|first| matches!(first, b'{' | b'['));
    // A line end within would be no harm, but records lie one a line.
    let is_structure =
        begins && !bytes.contains(&b'\n') && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    match std::str::from_utf8(bytes) {
        Ok(_) if is_structure => out.extend_from_slice(bytes),
        _ => lossy_string(bytes, out),
    }
}

impl Visitor for Gather {
    fn begin_scope(&mut self, scope: Scope) {
        self.depth = 0;
        if scope == Scope::Payload {
            self.in_payload = true;
            self.progress = Progress::new(Scopes::Flat, true);
        }
        self.write(|fields| fields.begin_scope(scope));
    }

    fn begin_structure(&mut self) {
        self.write(|fields| fields.begin_structure());
        self.depth += 1;
    }

    fn member(&mut self, name: &str) {
        if self.depth == 1 {
            self.member = match (self.in_payload, self.is_own) {
                (false, _) => Member::of_context(name),
                (true, true) => Member::of_own(name),
                (true, false) if name == "addr" => Member::Address,
                (true, false) => Member::Other,
            };
            self.context_shown |= !self.in_payload && self.member == Member::Other;
        }
        if self.is_argument() {
            self.argument = if name == "key" {
                Argument::Key
            } else {
                Argument::Other
            };
        }
        self.write(|fields| fields.member(name));
    }

    fn end_structure(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.write(|fields| fields.end_structure());
    }

    fn begin_array(&mut self, length: u64) {
        self.write(|fields| fields.begin_array(length));
        self.depth += 1;
    }

    fn element(&mut self, index: u64) {
        self.write(|fields| fields.element(index));
    }

    fn end_array(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.write(|fields| fields.end_array());
    }

    fn begin_variant(&mut self, option: Option<&str>) {
        if self.is_argument() {
            self.argument = match option {
                Some("nil") => Argument::Nil,
                Some("flag") => Argument::Flag,
                _ => Argument::Value,
            };
        }
    }

    fn end_variant(&mut self) {
        self.argument = Argument::Other;
    }

    fn begin_optional(&mut self, present: bool) {
        self.write(|fields| fields.begin_optional(present));
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.integer(i128::from(value), format.labels);
        if self.is_argument() {
            let flag = self.argument == Argument::Flag;
            self.argument(|out| {
                if flag {
                    out.extend_from_slice(if value != 0 { b"true" } else { b"false" });
                } else {
                    integer(value, out);
                }
            });
        }
        self.write(|fields| fields.unsigned(value, format));
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.integer(i128::from(value), format.labels);
        if self.is_argument() {
            self.argument(|out| integer(value, out));
        }
        self.write(|fields| fields.signed(value, format));
    }

    fn float(&mut self, value: f64, bits: u8) {
        if self.is_argument() {
            self.argument(|out| json_text::float(value, bits, out));
        }
        self.write(|fields| fields.float(value, bits));
    }

    fn boolean(&mut self, value: bool) {
        if self.is_argument() {
            let text: &[u8] = if value { b"true" } else { b"false" };
            self.argument(|out| out.extend_from_slice(text));
        }
        self.write(|fields| fields.boolean(value));
    }

    fn bit_array(&mut self, value: u64, bits: u8, flags: Option<&Labels>) {
        self.write(|fields| fields.bit_array(value, bits, flags));
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.depth == 1 && !self.in_payload && self.member == Member::Procname {
            self.identity.procname.extend_from_slice(bytes);
        }
        if self.depth == 1
            && self.writes_own()
            && let Some(text) = self.own.text(self.member)
        {
            text.extend_from_slice(bytes);
        }
        if self.is_argument() {
            if self.argument == Argument::Key {
                let begins = self.arguments.is_empty();
                self.arguments
                    .extend_from_slice(if begins { b"" } else { b"," });
                lossy_string(bytes, &mut self.arguments);
                self.arguments.push(b':');
            } else {
                self.argument(|out| text_or_structure(bytes, out));
            }
        }
        self.write(|fields| fields.text(bytes));
    }

    fn blob(&mut self, bytes: &[u8], media_type: &str) {
        self.write(|fields| fields.blob(bytes, media_type));
    }
}
