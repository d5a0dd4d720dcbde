//! The way back: from the fields of an event in a packet to what it says.

use std::borrow::Cow;
use std::ops::Range;

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::Scope;

use super::classes::Class;
use super::{FileChunk, Item};
use crate::metadata::RecordingMetadata;
use crate::record::{Json, Record, has_fields};

/// Collects the fields of an event as a [`Visitor`], and decodes them. The buffers are kept for the
/// next event.
#[derive(Debug, Default)]
pub struct EventDecoder {
    is_payload: bool,
    depth: usize,
    member: Option<Member>,
    numbers: [Option<i128>; Member::COUNT],
    texts: Vec<u8>,
    /// Ranges of `texts`, by member.
    ranges: [Option<Range<usize>>; Member::COUNT],
}

// One list for the enum, its size and the lookup, so that they do not go out of step.
macro_rules! members {
    ($($member:ident $name:literal,)+) => {
        /// A field that is read back.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Member { $($member,)+ }

        impl Member {
            const COUNT: usize = [$($name,)+].len();

            fn of_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$member),)+
                    _ => None,
                }
            }
        }
    };
}

members! {
    Id "id",
    PathId "path_id",
    Line "line",
    FunctionId "function_id",
    VariableId "variable_id",
    Legacy "legacy",
    Value "value",
    Args "args",
    Kind "kind",
    Metadata "metadata",
    Content "content",
    Name "name",
    Path "path",
    Type "type",
    Json "json",
    Program "program",
    Workdir "workdir",
    Others "others",
    Size "size",
    Offset "offset",
    Sha256 "sha256",
    Records "records",
}

impl EventDecoder {
    /// Whether a class of this name is one that [`EventEncoder`](super::EventEncoder) declares.
    #[must_use]
    pub fn is_known_class(class: &str) -> bool {
        Class::of_name(class).is_some()
    }

    /// Forgets the fields of the event before.
    pub fn clear(&mut self) {
        // The memory is kept for the next event.
        let mut texts = std::mem::take(&mut self.texts);
        texts.clear();
        *self = Self {
            texts,
            ..Self::default()
        };
    }

    /// The position of the definition that the visited event makes, as its producer counts: a gap
    /// says that definitions are missing. `None` if the event says none.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.number(Member::Id)
    }

    /// Decodes the event whose fields were visited since [`clear`](Self::clear), and whose class
    /// has this name. All JSON in a record is valid. `None` if a field is missing or malformed,
    /// because a foreign producer uses the name.
    #[must_use]
    pub fn decode(&self, class: &str) -> Option<Item<'_>> {
        let class = Class::of_name(class)?;
        let record = match class {
            Class::Meta => return self.decode_metadata().map(Item::Metadata),
            Class::End => {
                let records = self.number(Member::Records)?;
                return Some(Item::End { records });
            }
            Class::File => return self.decode_chunk().map(Item::FileChunk),
            Class::Step => Record::Step {
                path_id: self.number(Member::PathId)?,
                line: self.number(Member::Line)?,
            },
            Class::Value => Record::Value {
                variable_id: self.number(Member::VariableId)?,
                value: self.json(Member::Value)?,
            },
            Class::Call => Record::Call {
                function_id: self.number(Member::FunctionId)?,
                args: self.json(Member::Args)?,
            },
            Class::Return => Record::Return(self.json(Member::Value)?),
            Class::Log => Record::Log {
                kind: self.number(Member::Kind)?,
                metadata: self.text(Member::Metadata)?.into(),
                content: self.text(Member::Content)?.into(),
            },
            Class::Path => Record::Path(self.text(Member::Path)?.into()),
            Class::Function => Record::Function {
                path_id: self.number(Member::PathId)?,
                line: self.number(Member::Line)?,
                name: self.text(Member::Name)?.into(),
            },
            Class::Type => Record::Type(self.json(Member::Type)?),
            Class::Variable => Record::Variable {
                name: self.text(Member::Name)?.into(),
                is_legacy: self.number::<u64>(Member::Legacy)? != 0,
            },
            Class::DropLastStep => Record::DropLastStep,
            Class::Other => self.decode_other()?,
        };
        Some(Item::Record(record))
    }

    /// The members with fields of their own, and all others, which older producers do not send. A
    /// text that a field cannot hold is among the others.
    fn decode_metadata(&self) -> Option<RecordingMetadata> {
        let others = self.text(Member::Others).unwrap_or("{}");
        let mut metadata = RecordingMetadata::parse(others).ok()?;
        for (text, member) in [
            (&mut metadata.workdir, Member::Workdir),
            (&mut metadata.program, Member::Program),
        ] {
            // A text with a NUL has come as JSON among the others.
            if text.is_empty() {
                self.text(member)?.clone_into(text);
            }
        }
        metadata.args = serde_json::from_str(self.text(Member::Args)?).ok()?;
        Some(metadata)
    }

    /// A kind without fields of its own; or a record that no other class can hold, whose kind is
    /// empty if the JSON is a whole element.
    fn decode_other(&self) -> Option<Record<'_>> {
        let (kind, json) = (self.text(Member::Kind)?, self.text(Member::Json)?);
        if kind.is_empty() {
            return Record::parse(json).ok();
        }
        // A text that a field cannot hold has come as JSON, within its own kind.
        if has_fields(kind) {
            // As a whole element, so that its payload is checked as that of its kind.
            let element = format!("{{\"{kind}\":{json}}}");
            return Record::parse(&element).ok().map(Record::into_owned);
        }
        Some(Record::Other {
            kind: kind.into(),
            payload: self.json(Member::Json)?,
        })
    }

    fn decode_chunk(&self) -> Option<FileChunk<'_>> {
        let content = self.bytes(Member::Content)?;
        Some(FileChunk {
            path: self.text(Member::Path)?.into(),
            size: self.number(Member::Size)?,
            offset: self.number(Member::Offset)?,
            content: Cow::Borrowed(content),
            sha256: self.text(Member::Sha256)?.into(),
        })
    }

    fn number<N: TryFrom<i128>>(&self, member: Member) -> Option<N> {
        let number = self.numbers.get(member as usize).copied().flatten()?;
        N::try_from(number).ok()
    }

    fn bytes(&self, member: Member) -> Option<&[u8]> {
        self.texts.get(self.ranges.get(member as usize)?.clone()?)
    }

    fn text(&self, member: Member) -> Option<&str> {
        std::str::from_utf8(self.bytes(member)?).ok()
    }

    fn json(&self, member: Member) -> Option<Json<'_>> {
        Json::parse(self.text(member)?).ok()
    }

    /// The member whose value comes next, if it is one of the payload's own.
    fn visited(&self) -> Option<Member> {
        self.member.filter(|_| self.is_payload && self.depth == 1)
    }

    fn set_number(&mut self, value: i128) {
        let Some(member) = self.visited() else { return };
        if let Some(Some(range)) = self.ranges.get_mut(member as usize) {
            // An element of the sequence that has begun. Those of `content` have 8 bits; a foreign
            // producer may send others.
            self.texts.push(u8::try_from(value).unwrap_or(0));
            range.end = self.texts.len();
        } else if let Some(number) = self.numbers.get_mut(member as usize) {
            *number = Some(value);
        }
    }

    fn set_text(&mut self, bytes: &[u8]) {
        let Some(member) = self.visited() else { return };
        let begin = self.texts.len();
        self.texts.extend_from_slice(bytes);
        if let Some(range) = self.ranges.get_mut(member as usize) {
            *range = Some(begin..self.texts.len());
        }
    }
}

impl Visitor for EventDecoder {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_payload = scope == Scope::Payload;
        self.depth = 0;
    }

    fn end_scope(&mut self) {
        self.is_payload = false;
    }

    fn begin_structure(&mut self) {
        self.depth += 1;
    }

    fn end_structure(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn member(&mut self, name: &str) {
        // A member of a nested structure is no field of the event.
        if self.depth == 1 {
            self.member = Member::of_name(name);
        }
    }

    fn begin_array(&mut self, _length: u64) {
        // An empty range, to which the elements are added.
        self.set_text(&[]);
    }

    fn unsigned(&mut self, value: u64, _: NumberFormat<'_>) {
        self.set_number(value.into());
    }

    fn signed(&mut self, value: i64, _: NumberFormat<'_>) {
        self.set_number(value.into());
    }

    fn boolean(&mut self, value: bool) {
        self.set_number(value.into());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.set_text(bytes);
    }
}
