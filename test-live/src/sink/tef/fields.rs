//! The fields of one event: values of members that this format interprets, and the JSON of all
//! others. The buffers are kept from event to event.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};
use serde::de::IgnoredAny;
use viewer::interpret::debug_info::EventLocations;
use viewer::json_fields::{JsonFields, JsonPosition};
use viewer::json_text::{self, boolean, integer, lossy_string, string};

/// Members of contexts and payloads that are interpreted. From [`Phase`](Self::Phase) on they are
/// of the generic classes of our own producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
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

const MEMBERS: usize = Member::Parent as usize + 1;

impl Member {
    fn of_context(name: &str) -> Option<Self> {
        Some(match name {
            "vpid" => Self::Vpid,
            "vtid" => Self::Vtid,
            "pid" => Self::Pid,
            "tid" => Self::Tid,
            "cpu_id" => Self::Cpu,
            "procname" => Self::Procname,
            _ => return None,
        })
    }

    fn of_generic_class(name: &str) -> Option<Self> {
        Some(match name {
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
            _ => return None,
        })
    }
}

/// The part of an element of `args` that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Argument {
    #[default]
    Other,
    Key,
    Nil,
    Flag,
    Value,
}

/// Collects the fields of one event.
#[derive(Debug, Default)]
pub(super) struct EventFields {
    numbers: [Option<i128>; MEMBERS],
    texts: [Vec<u8>; MEMBERS],
    /// The name of the function that is entered or left.
    function_name: Vec<u8>,
    /// Members of a JSON object, from the payload.
    arguments: Vec<u8>,
    /// Members of a JSON object, from contexts.
    context: Vec<u8>,
    /// Whether `context` says more than whose the event is.
    is_context_shown: bool,
    /// Whether the event is of a generic class of our own producers.
    is_generic: bool,
    in_payload: bool,
    depth: usize,
    member: Option<Member>,
    argument: Argument,
    position: JsonPosition,
}

impl EventFields {
    /// Forgets the event before.
    pub(super) fn begin_event(&mut self, is_generic: bool) {
        self.numbers = [None; MEMBERS];
        // Cleared, not replaced, because the next event uses their memory again.
        self.texts.iter_mut().for_each(Vec::clear);
        self.function_name.clear();
        self.arguments.clear();
        self.context.clear();
        self.is_context_shown = false;
        self.is_generic = is_generic;
        self.in_payload = false;
        self.depth = 0;
        self.position = JsonPosition::default();
    }

    /// The process that the event is of, as its contexts say.
    pub(super) fn process(&self) -> Option<i64> {
        self.signed(Member::Vpid).or(self.signed(Member::Pid))
    }

    /// The thread that the event is of, as its contexts say.
    pub(super) fn thread(&self) -> Option<i64> {
        self.signed(Member::Vtid).or(self.signed(Member::Tid))
    }

    /// A number that has a sign, if it is there and fits.
    pub(super) fn signed(&self, member: Member) -> Option<i64> {
        let number = self.numbers.get(member as usize).copied().flatten();
        i64::try_from(number?).ok()
    }

    /// A number without sign; 0 if it is not there or does not fit.
    pub(super) fn unsigned(&self, member: Member) -> u64 {
        let number = self.numbers.get(member as usize).copied().flatten();
        number.map_or(0, |number| u64::try_from(number).unwrap_or(0))
    }

    /// A text; empty if it is not there.
    pub(super) fn text(&self, member: Member) -> &[u8] {
        self.texts.get(member as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds what the addresses in the event are.
    pub(super) fn add_locations(&mut self, locations: &EventLocations) {
        self.function_name.clear();
        let name = locations.function_name().unwrap_or_default();
        self.function_name.extend_from_slice(name.as_bytes());
        for (name, text) in locations.fields() {
            if !self.arguments.is_empty() {
                self.arguments.push(b',');
            }
            string(name, &mut self.arguments);
            self.arguments.push(b':');
            string(text, &mut self.arguments);
        }
    }

    /// The name of the function that the event says is entered or left; empty if it is not known.
    pub(super) fn function_name(&self) -> &[u8] {
        &self.function_name
    }

    /// Writes the members of `args`.
    pub(super) fn write_arguments(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        let comma = |out: &mut Vec<u8>| {
            if out.len() > begin {
                out.push(b',');
            }
        };
        let name = |name: &str, out: &mut Vec<u8>| {
            comma(out);
            string(name, out);
            out.push(b':');
        };
        if self.is_generic {
            for (member, text) in [("level", Member::Level), ("file", Member::File)] {
                if !self.text(text).is_empty() {
                    name(member, out);
                    lossy_string(self.text(text), out);
                }
            }
            // By our producers, 0 stands for no line, no span and no parent.
            if self.unsigned(Member::Line) > 0 {
                name("line", out);
                integer(self.unsigned(Member::Line), out);
            }
            for (member, id) in [("span", Member::Span), ("parent", Member::Parent)] {
                if self.unsigned(id) > 0 {
                    name(member, out);
                    // As text, because a number of JavaScript has 53 bits.
                    string(&format!("{:#x}", self.unsigned(id)), out);
                }
            }
        }
        if !self.arguments.is_empty() {
            comma(out);
            out.extend_from_slice(&self.arguments);
        }
        if self.is_context_shown && !self.is_generic {
            name("context", out);
            out.push(b'{');
            out.extend_from_slice(&self.context);
            out.push(b'}');
        }
    }

    /// Whether a payload is being visited whose members all mean something.
    fn in_generic_payload(&self) -> bool {
        self.is_generic && self.in_payload
    }

    fn write(&mut self, write: impl FnOnce(&mut JsonFields<'_>)) {
        if self.in_generic_payload() {
            return;
        }
        let out = if self.in_payload {
            &mut self.arguments
        } else {
            &mut self.context
        };
        let mut fields = JsonFields::new(out, self.position);
        write(&mut fields);
        self.position = fields.position();
    }

    /// Whether an element of `args` is being visited.
    fn in_argument(&self) -> bool {
        // Open are the payload, the array `args`, and its element.
        self.in_generic_payload() && self.depth == 3
    }

    fn write_argument(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        match self.argument {
            Argument::Nil if self.in_argument() => self.arguments.extend_from_slice(b"null"),
            Argument::Flag | Argument::Value if self.in_argument() => write(&mut self.arguments),
            _ => {}
        }
    }

    fn set_number(&mut self, value: i128, labels: Option<&Labels>) {
        let is_labelled = self.in_generic_payload();
        let Some(member) = self.top_level_member() else {
            return;
        };
        if let Some(number) = self.numbers.get_mut(member) {
            *number = Some(value);
        }
        if let (true, Some(labels), Some(text)) = (is_labelled, labels, self.texts.get_mut(member))
        {
            match labels.of(value).next() {
                Some(label) => text.extend_from_slice(label.as_bytes()),
                // A phase is the character that it stands for.
                None => text.extend(u8::try_from(value).ok().filter(u8::is_ascii_graphic)),
            }
        }
    }

    /// The number of the member that is being visited, if it means something and lies in nothing
    /// else.
    fn top_level_member(&self) -> Option<usize> {
        Some(self.member.filter(|_| self.depth == 1)? as usize)
    }
}

/// Writes a text, or the object or array that it is the text of.
fn write_text_or_structure(bytes: &[u8], out: &mut Vec<u8>) {
    // A line end within would be no harm, but records lie one a line.
    let is_structure = matches!(bytes.first(), Some(b'{' | b'['))
        && !bytes.contains(&b'\n')
        && std::str::from_utf8(bytes).is_ok()
        && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    if is_structure {
        out.extend_from_slice(bytes);
    } else {
        lossy_string(bytes, out);
    }
}

impl Visitor for EventFields {
    fn begin_scope(&mut self, scope: Scope) {
        self.depth = 0;
        if scope == Scope::Payload {
            self.in_payload = true;
            self.position = JsonPosition::default();
        }
        self.write(|fields| fields.begin_scope(scope));
    }

    fn begin_structure(&mut self) {
        self.write(|fields| fields.begin_structure());
        self.depth += 1;
    }

    fn member(&mut self, name: &str) {
        if self.depth == 1 {
            self.member = match (self.in_payload, self.is_generic) {
                (false, _) => Member::of_context(name),
                (true, true) => Member::of_generic_class(name),
                (true, false) => (name == "addr").then_some(Member::Address),
            };
            self.is_context_shown |= !self.in_payload && self.member.is_none();
        }
        self.argument = match name {
            "key" => Argument::Key,
            _ => Argument::Other,
        };
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
        if self.in_argument() {
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
        self.set_number(i128::from(value), format.labels);
        let is_flag = self.argument == Argument::Flag;
        self.write_argument(|out| match is_flag {
            true => boolean(value != 0, out),
            false => integer(value, out),
        });
        self.write(|fields| fields.unsigned(value, format));
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.set_number(i128::from(value), format.labels);
        self.write_argument(|out| integer(value, out));
        self.write(|fields| fields.signed(value, format));
    }

    fn float(&mut self, value: f64, bits: u8) {
        self.write_argument(|out| json_text::float(value, bits, out));
        self.write(|fields| fields.float(value, bits));
    }

    fn boolean(&mut self, value: bool) {
        self.write_argument(|out| boolean(value, out));
        self.write(|fields| fields.boolean(value));
    }

    fn bit_array(&mut self, value: u64, bits: u8, flags: Option<&Labels>) {
        self.write(|fields| fields.bit_array(value, bits, flags));
    }

    fn text(&mut self, bytes: &[u8]) {
        let member = self.top_level_member();
        if let Some(text) = member.and_then(|member| self.texts.get_mut(member)) {
            text.extend_from_slice(bytes);
        }
        if self.in_argument() && self.argument == Argument::Key {
            if !self.arguments.is_empty() {
                self.arguments.push(b',');
            }
            lossy_string(bytes, &mut self.arguments);
            self.arguments.push(b':');
        }
        self.write_argument(|out| write_text_or_structure(bytes, out));
        self.write(|fields| fields.text(bytes));
    }

    fn blob(&mut self, bytes: &[u8], media_type: &str) {
        self.write(|fields| fields.blob(bytes, media_type));
    }
}
