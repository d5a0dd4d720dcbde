//! The fields of one event as text: ` key=value` for each. The buffers are kept from event to
//! event.

use std::borrow::Cow;
use std::fmt::Write;

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Base, Labels, Scope};
use daemon::event_text::push_value;
use viewer::interpret::debug_info::EventLocations;

/// Members of the packet context that describe the packet, and not the event. Readers of most
/// traces do not see them.
const OF_PACKET: [&str; 9] = [
    "packet_size",
    "content_size",
    "events_discarded",
    "packet_seq_num",
    "timestamp_begin",
    "timestamp_end",
    "stream_id",
    "stream_instance_id",
    "magic",
];

/// The members of an event that are not shown as fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Omitted {
    /// None: all are of a program, which may name them as it likes.
    #[default]
    Nothing,
    /// Members that the head of the line shows, and members that describe the trace.
    ShownAndInternal {
        /// A member of the payload, which [`LogFields::captured`] returns.
        captured: &'static str,
        /// Whether `cpu_id` is the number of a CPU. Otherwise it says nothing.
        has_cpus: bool,
        /// Whether `span` and `parent` are the ids of spans.
        has_span_ids: bool,
    },
}

/// What contexts say about whose an event is.
#[derive(Debug, Default)]
pub(super) struct ContextHead {
    pub(super) vpid: Option<i64>,
    pub(super) vtid: Option<i64>,
    pub(super) pid: Option<i64>,
    pub(super) tid: Option<i64>,
    pub(super) cpu: Option<i64>,
    /// The id of the span, of an event of a span.
    pub(super) span: Option<u64>,
    /// The id of the span around the span, of an event of a span.
    pub(super) parent: Option<u64>,
    /// The name of the process or thread; empty if it is not there.
    pub(super) procname: String,
    /// The name of the host; empty if it is not there.
    pub(super) hostname: String,
}

/// Where the next value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// The value is shown as a field.
    #[default]
    Shown,
    /// The value is not shown.
    Hidden,
    /// The value goes to [`ContextHead`], by this name.
    Head(HeadMember),
    /// The number of a CPU: it is shown as a field, and goes to [`ContextHead`].
    Cpu,
    /// The value is that of the captured member.
    Captured,
}

impl Place {
    /// Whether the value is shown as a field.
    fn is_shown(self) -> bool {
        matches!(self, Self::Shown | Self::Cpu)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadMember {
    Vpid,
    Vtid,
    Pid,
    Tid,
    Procname,
    Hostname,
    Span,
    Parent,
}

/// A structure or array that is open.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// The length of the text before the structure and its name.
    begin: usize,
    is_empty: bool,
}

/// Where the text of a member of the payload is.
#[derive(Debug, Clone, Copy)]
struct MemberText {
    /// The place of the space before the name.
    begin: usize,
    /// The place of the `=` after the name.
    name_end: usize,
}

/// Collects the fields of one event as text.
#[derive(Debug, Default)]
pub(super) struct LogFields {
    pub(super) head: ContextHead,
    omitted: Omitted,
    payload: String,
    /// The members of the payload, in order.
    members: Vec<MemberText>,
    contexts: String,
    captured: String,
    scope: Option<Scope>,
    frames: Vec<Frame>,
    /// The length of the text before the name of the member or the element that is being visited.
    before_value: usize,
    place: Place,
    /// Structures and arrays that are open within a member that is not shown.
    hidden_depth: usize,
}

impl LogFields {
    /// Forgets the event before.
    pub(super) fn begin_event(&mut self, omitted: Omitted) {
        let head = &mut self.head;
        head.procname.clear();
        head.hostname.clear();
        // Both names keep their memory for the next event.
        self.head = ContextHead {
            procname: std::mem::take(&mut head.procname),
            hostname: std::mem::take(&mut head.hostname),
            ..ContextHead::default()
        };
        self.omitted = omitted;
        for text in [&mut self.payload, &mut self.contexts, &mut self.captured] {
            text.clear();
        }
        self.members.clear();
        self.scope = None;
        self.frames.clear();
        self.place = Place::Shown;
        self.hidden_depth = 0;
    }

    /// The text of the member that is left out of the payload; empty if there is none.
    pub(super) fn captured(&self) -> &str {
        &self.captured
    }

    /// The fields, each with a space in front: those of the payload, then those of contexts.
    pub(super) fn texts(&self) -> [&str; 2] {
        [&self.payload, &self.contexts]
    }

    /// The names and the texts of the values of the fields of the payload.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        let ends = self.members.iter().skip(1).map(|next| next.begin);
        let ends = ends.chain([self.payload.len()]);
        self.members.iter().zip(ends).filter_map(|(member, end)| {
            let name = self.payload.get(member.begin + 1..member.name_end)?;
            Some((name, self.payload.get(member.name_end + 1..end)?))
        })
    }

    /// Adds ids of process and thread that differ from those in the head of the line, which are
    /// those of the innermost namespace.
    pub(super) fn push_other_ids(&mut self) {
        let head = &self.head;
        for (name, shown, other) in [("pid", head.vpid, head.pid), ("tid", head.vtid, head.tid)] {
            if let (Some(shown), Some(other)) = (shown, other)
                && shown != other
            {
                // Writing to memory does not fail.
                let _ = write!(self.contexts, " {name}={other}");
            }
        }
    }

    /// Adds the ids of the span and of the one around it, which are not shown otherwise.
    pub(super) fn push_span_ids(&mut self) {
        // From here on, these are fields as any other.
        self.omitted = Omitted::Nothing;
        let ids = [("span", self.head.span), ("parent", self.head.parent)];
        for (name, id) in ids {
            if let Some(id) = id {
                self.push_text(name, &id.to_string());
            }
        }
    }

    /// Adds what the addresses in the event are. The name of a function takes the place of its
    /// address.
    pub(super) fn push_locations(&mut self, locations: &EventLocations) {
        for (name, text) in locations.fields() {
            self.push_text(name, text);
        }
        if let Some(name) = locations.function_name() {
            self.captured.clear();
            self.captured.push_str(name);
        }
    }

    /// Adds a field with this text.
    pub(super) fn push_text(&mut self, name: &str, text: &str) {
        self.begin_scope(Scope::Payload);
        self.begin_structure();
        self.member(name);
        self.text(text.as_bytes());
        self.end_structure();
    }

    fn out(&mut self) -> &mut String {
        match self.scope {
            Some(Scope::Payload) => &mut self.payload,
            _ => &mut self.contexts,
        }
    }

    /// Where the value of a member of the root goes.
    fn place_of(&self, name: &str) -> Place {
        let Omitted::ShownAndInternal {
            captured,
            has_cpus,
            has_span_ids,
        } = self.omitted
        else {
            return Place::Shown;
        };
        if self.scope == Some(Scope::Payload) {
            return match name {
                _ if name == captured => Place::Captured,
                _ if name.starts_with('_') => Place::Hidden,
                "span" if has_span_ids => Place::Head(HeadMember::Span),
                "parent" if has_span_ids => Place::Head(HeadMember::Parent),
                _ => Place::Shown,
            };
        }
        match name {
            "vpid" => Place::Head(HeadMember::Vpid),
            "vtid" => Place::Head(HeadMember::Vtid),
            "pid" => Place::Head(HeadMember::Pid),
            "tid" => Place::Head(HeadMember::Tid),
            "procname" => Place::Head(HeadMember::Procname),
            "hostname" => Place::Head(HeadMember::Hostname),
            "cpu_id" if has_cpus => Place::Cpu,
            "cpu_id" => Place::Hidden,
            _ if name.starts_with('_') => Place::Hidden,
            _ if self.scope == Some(Scope::PacketContext) && OF_PACKET.contains(&name) => {
                Place::Hidden
            }
            _ => Place::Shown,
        }
    }

    /// Begins what is written at the next member or element.
    fn separate(&mut self) {
        let is_first = self.frames.last().is_none_or(|frame| frame.is_empty);
        let is_root = self.frames.len() <= 1;
        let out = self.out();
        let before_value = out.len();
        match (is_root, is_first) {
            (true, _) => out.push(' '),
            (false, true) => {}
            (false, false) => out.push(','),
        }
        self.before_value = before_value;
    }

    /// The value that was begun is there.
    fn finish_value(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.is_empty = false;
        }
    }

    fn open(&mut self, brace: char) {
        if self.hidden_depth > 0 || !self.place.is_shown() {
            self.hidden_depth += 1;
            return;
        }
        let begin = self.before_value;
        // The root itself has no braces.
        if !self.frames.is_empty() {
            self.out().push(brace);
        }
        self.frames.push(Frame {
            begin,
            is_empty: true,
        });
    }

    /// Closes what [`open`](Self::open) has opened. What is empty is removed, with its name, if it
    /// `may_vanish`.
    fn close(&mut self, brace: char, may_vanish: bool) {
        if let Some(depth) = self.hidden_depth.checked_sub(1) {
            self.hidden_depth = depth;
            return;
        }
        let Some(frame) = self.frames.pop() else {
            return;
        };
        if self.frames.is_empty() {
            return;
        }
        if frame.is_empty && may_vanish {
            self.truncate(frame.begin);
        } else {
            self.out().push(brace);
            self.finish_value();
        }
        self.place = Place::Shown;
    }

    /// Removes what was written from `length` on.
    fn truncate(&mut self, length: usize) {
        self.out().truncate(length);
        let payload = self.payload.len();
        self.members.retain(|member| member.begin < payload);
    }

    /// Writes a value that is no text.
    fn value(&mut self, number: Option<i64>, write: impl FnOnce(&mut String)) {
        if self.hidden_depth > 0 {
            return;
        }
        match self.place {
            Place::Hidden => {}
            Place::Captured => write(&mut self.captured),
            Place::Head(member) => self.set_number(member, number),
            Place::Shown | Place::Cpu => {
                if self.place == Place::Cpu {
                    self.head.cpu = number;
                }
                write(self.out());
                self.finish_value();
            }
        }
    }

    fn set_number(&mut self, member: HeadMember, number: Option<i64>) {
        let head = &mut self.head;
        match member {
            HeadMember::Vpid => head.vpid = number,
            HeadMember::Vtid => head.vtid = number,
            HeadMember::Pid => head.pid = number,
            HeadMember::Tid => head.tid = number,
            HeadMember::Span => head.span = number.map(i64::cast_unsigned),
            HeadMember::Parent => head.parent = number.map(i64::cast_unsigned),
            HeadMember::Procname | HeadMember::Hostname => {}
        }
    }

    fn number(
        &mut self,
        value: i128,
        format: NumberFormat<'_>,
        write: impl FnOnce(&mut String, NumberFormat<'_>),
    ) {
        let is_id = matches!(
            self.place,
            Place::Head(HeadMember::Span | HeadMember::Parent)
        );
        let number = match is_id {
            // Ids have all 64 bits, and 0 is none.
            true => u64::try_from(value).ok().map(u64::cast_signed),
            false => i64::try_from(value).ok(),
        };
        self.value(number.filter(|number| !is_id || *number != 0), |out| {
            let is_labelled = format
                .labels
                .is_some_and(|labels| push_labels(out, labels.of(value)));
            if !is_labelled {
                write(out, format);
            }
        });
    }
}

impl Visitor for LogFields {
    fn begin_scope(&mut self, scope: Scope) {
        self.scope = Some(scope);
        self.frames.clear();
        self.place = Place::Shown;
        self.hidden_depth = 0;
    }

    fn begin_structure(&mut self) {
        self.open('{');
    }

    fn member(&mut self, name: &str) {
        if self.hidden_depth > 0 {
            return;
        }
        self.place = match self.frames.len() {
            1 => self.place_of(name),
            _ => Place::Shown,
        };
        if self.place.is_shown() {
            self.separate();
            let out = self.out();
            push_value(out, name);
            let member = MemberText {
                begin: self.before_value,
                name_end: self.out().len(),
            };
            if self.frames.len() == 1 && self.scope == Some(Scope::Payload) {
                self.members.push(member);
            }
            self.out().push('=');
        }
    }

    fn end_structure(&mut self) {
        self.close('}', true);
    }

    fn begin_array(&mut self, _length: u64) {
        self.open('[');
    }

    fn element(&mut self, _index: u64) {
        if self.hidden_depth == 0 {
            self.place = Place::Shown;
            self.separate();
        }
    }

    fn end_array(&mut self) {
        self.close(']', false);
    }

    fn begin_optional(&mut self, present: bool) {
        if present || self.hidden_depth > 0 || !self.place.is_shown() {
            return;
        }
        if self.omitted == Omitted::Nothing {
            // A program that sends JSON has written `null` itself.
            self.value(None, |out| out.push_str("null"));
        } else {
            // The name was written before it was known that there is no value.
            let before_value = self.before_value;
            self.truncate(before_value);
        }
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.number(value.into(), format, |out, format| {
            push_number(out, value, format.base);
        });
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.number(value.into(), format, |out, format| match format.base {
            Base::Decimal => {
                let _ = write!(out, "{value}");
            }
            base => {
                // As many digits as the field has bits: the others only repeat the sign.
                let unused = 64u32.saturating_sub(format.bits.into());
                let mask = u64::MAX.checked_shr(unused).unwrap_or(0);
                push_number(out, value.cast_unsigned() & mask, base);
            }
        });
    }

    fn float(&mut self, value: f64, bits: u8) {
        self.value(None, |out| {
            #[expect(clippy::cast_possible_truncation, reason = "it came from 32 bits")]
            let _ = match bits {
                32 => write!(out, "{:?}", value as f32),
                _ => write!(out, "{value:?}"),
            };
        });
    }

    fn boolean(&mut self, value: bool) {
        self.value(None, |out| {
            out.push_str(if value { "true" } else { "false" })
        });
    }

    fn bit_array(&mut self, value: u64, _bits: u8, flags: Option<&Labels>) {
        self.value(None, |out| {
            if !flags.is_some_and(|flags| push_labels(out, flags.of_bits(value))) {
                push_number(out, value, Base::Hexadecimal);
            }
        });
    }

    fn text(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let head = match self.place {
            Place::Head(HeadMember::Procname) => &mut self.head.procname,
            Place::Head(HeadMember::Hostname) => &mut self.head.hostname,
            Place::Captured => &mut self.captured,
            _ => return self.value(None, |out| push_value(out, &text)),
        };
        if self.hidden_depth == 0 {
            head.push_str(&text);
        }
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        self.value(None, |out| {
            for byte in bytes {
                let _ = write!(out, "{byte:02x}");
            }
        });
    }
}

fn push_number(out: &mut String, value: u64, base: Base) {
    let _ = match base {
        Base::Decimal => write!(out, "{value}"),
        Base::Hexadecimal => write!(out, "{value:#x}"),
        Base::Octal => write!(out, "0{value:o}"),
        Base::Binary => write!(out, "{value:#b}"),
    };
}

/// Writes labels as one text. Returns false if there is none.
fn push_labels<'l>(out: &mut String, mut labels: impl Iterator<Item = &'l str>) -> bool {
    let Some(first) = labels.next() else {
        return false;
    };
    let mut text = Cow::Borrowed(first);
    for label in labels {
        text.to_mut().push('|');
        text.to_mut().push_str(label);
    }
    push_value(out, &text);
    true
}

#[cfg(test)]
pub(super) mod tests;
