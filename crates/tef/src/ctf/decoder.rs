//! The way back: from the fields of an event in a packet to what a client sent.

use std::borrow::Cow;
use std::ops::Range;

use ::ctf::decode::{NumberFormat, Visitor};
use ::ctf::model::Scope;

use super::classes::{Client, Lost};
use super::{PREFIX, name};
use crate::event::{Event, Record};
use crate::phase::{FAMILIES, Family, Field, Holds, OTHER};

/// The content of an event of one of the classes that [`Classes`](super::Classes) declares.
#[expect(clippy::large_enum_variant, reason = "nearly all are events")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<'d> {
    /// A line that a client has sent.
    Record {
        /// The client's number in the trace.
        client: u32,
        /// The line as values.
        record: Record<'d>,
    },
    /// The begin or end of a connection.
    Client(Client<'d>),
    /// Lines that are not in the trace.
    Lost(Lost<'d>),
}

/// Collects the fields of an event as a [`Visitor`], and decodes them. The buffers are kept for the
/// next event.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    scope: Option<Scope>,
    depth: usize,
    member: Option<Member>,
    vpid: Option<i64>,
    vtid: Option<i64>,
    /// The numbers of the event, by field.
    numbers: [Option<i64>; Field::COUNT],
    client: Option<u32>,
    present: Option<u32>,
    /// Numbers of `tef:client` and `tef:lost`.
    daemon: DaemonFields,
    texts: Vec<u8>,
    /// Ranges of `texts`, by member.
    places: [Option<Range<usize>>; Member::COUNT],
}

#[derive(Debug, Default)]
struct DaemonFields {
    uid: u32,
    opened: bool,
    offset_known: bool,
    offset: i64,
    count: u64,
}

/// A field of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Field(Field),
    Client,
    Present,
    Phase,
    Rest,
    Json,
    Uid,
    Exe,
    Opened,
    OffsetKnown,
    Offset,
    Count,
    Reason,
}

impl Member {
    const COUNT: usize = Field::COUNT + 5;

    fn of(text: &str) -> Option<Self> {
        Some(match text {
            name::CLIENT => Self::Client,
            name::PRESENT => Self::Present,
            name::PHASE => Self::Phase,
            name::REST => Self::Rest,
            name::JSON => Self::Json,
            name::UID => Self::Uid,
            name::EXE => Self::Exe,
            name::OPENED => Self::Opened,
            name::OFFSET_KNOWN => Self::OffsetKnown,
            name::OFFSET => Self::Offset,
            name::COUNT => Self::Count,
            name::REASON => Self::Reason,
            other => {
                // Their names are in one table, and no name above is among them.
                let mut all = Field::ALL.iter();
                Self::Field(*all.find(|field| field.name() == other)?)
            }
        })
    }

    /// The index into `places`, of a member that is a text.
    fn place(self) -> Option<usize> {
        Some(match self {
            Self::Field(field) => field as usize,
            Self::Phase => Field::COUNT,
            Self::Rest => Field::COUNT + 1,
            Self::Json => Field::COUNT + 2,
            Self::Exe => Field::COUNT + 3,
            Self::Reason => Field::COUNT + 4,
            _ => return None,
        })
    }
}

/// The family whose class has this name, without the prefix.
fn family_of(class: &str) -> Option<&'static Family> {
    let mut all = FAMILIES.iter().chain([&OTHER]);
    all.find(|family| family.class == class)
}

impl RecordDecoder {
    /// Whether a class of this name is one that [`Classes`](super::Classes) declares.
    #[must_use]
    pub fn is_known_class(class: &str) -> bool {
        class.strip_prefix(PREFIX).is_some_and(|class| {
            family_of(class).is_some() || matches!(class, "raw" | "client" | "lost")
        })
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

    /// Decodes the event whose fields were visited since [`clear`](Self::clear), and whose class
    /// has this name. `None` if a field of such a class is missing, because a foreign producer uses
    /// the name. JSON in it is as it was in the packet, and so need not be JSON.
    #[must_use]
    pub fn decode(&self, class: &str) -> Option<Decoded<'_>> {
        let client = self.client?;
        match class.strip_prefix(PREFIX)? {
            "raw" => {
                let record = Record::Raw(self.text(Member::Json)?);
                Some(Decoded::Record { client, record })
            }
            "client" => Some(Decoded::Client(Client {
                client,
                pid: self
                    .number(Field::Pid)
                    // 0 was written for a process that is not known.
                    .filter(|pid| *pid != 0)
                    .and_then(|pid| i32::try_from(pid).ok()),
                uid: self.daemon.uid,
                exe: self.text(Member::Exe)?,
                opened: self.daemon.opened,
                offset: self.daemon.offset_known.then_some(self.daemon.offset),
            })),
            "lost" => Some(Decoded::Lost(Lost {
                client,
                count: self.daemon.count,
                reason: self.text(Member::Reason)?,
            })),
            class => {
                let record = Record::Event(self.event(family_of(class)?)?);
                Some(Decoded::Record { client, record })
            }
        }
    }

    fn event(&self, family: &'static Family) -> Option<Event<'_>> {
        let present = self.present?;
        let phase = if family.says_phase() {
            self.text(Member::Phase)?
        } else {
            family.phases
        };
        let mut event = Event::new(phase);
        // Written again, the event would have other fields than it has here.
        if event.family() != family {
            return None;
        }
        for field in Field::ALL {
            if present & family.mask() & field.bit() == 0 {
                continue;
            }
            let fits = match field.holds() {
                Holds::Time => event.set_number(field, self.number(field)?),
                Holds::Owner => {
                    let owner = if field == Field::Pid {
                        self.vpid
                    } else {
                        self.vtid
                    };
                    event.set_number(field, owner?)
                }
                Holds::Text => {
                    let text = self.text(Member::Field(field))?;
                    event.set_text(field, Cow::Borrowed(text))
                }
                Holds::Token | Holds::Object => {
                    event.set_json(field, self.text(Member::Field(field))?)
                }
            };
            if !fits {
                return None;
            }
        }
        event.rest = Cow::Borrowed(self.text(Member::Rest)?);
        Some(event)
    }

    fn number(&self, field: Field) -> Option<i64> {
        self.numbers.get(field as usize).copied().flatten()
    }

    fn text(&self, member: Member) -> Option<&str> {
        let range = self.places.get(member.place()?)?.clone()?;
        // A foreign producer may have written anything.
        std::str::from_utf8(self.texts.get(range)?).ok()
    }

    fn integer(&mut self, value: i128) {
        if self.depth != 1 {
            return;
        }
        let Some(member) = self.member else { return };
        let signed = i64::try_from(value).ok();
        // The payload of `tef:client` has a `pid` too, which is not that of the context.
        if self.scope == Some(Scope::CommonContext) {
            match member {
                Member::Field(Field::Pid) => self.vpid = signed,
                Member::Field(Field::Tid) => self.vtid = signed,
                _ => {}
            }
            return;
        }
        let daemon = &mut self.daemon;
        match member {
            Member::Field(field) => {
                if let Some(place) = self.numbers.get_mut(field as usize) {
                    *place = signed;
                }
            }
            Member::Client => self.client = u32::try_from(value).ok(),
            Member::Present => self.present = u32::try_from(value).ok(),
            Member::Uid => daemon.uid = u32::try_from(value).unwrap_or(0),
            Member::Opened => daemon.opened = value != 0,
            Member::OffsetKnown => daemon.offset_known = value != 0,
            Member::Offset => daemon.offset = signed.unwrap_or(0),
            Member::Count => daemon.count = u64::try_from(value).unwrap_or(0),
            _ => {}
        }
    }
}

impl Visitor for RecordDecoder {
    fn begin_scope(&mut self, scope: Scope) {
        self.scope = Some(scope);
        self.depth = 0;
    }

    fn end_scope(&mut self) {
        self.scope = None;
    }

    fn begin_structure(&mut self) {
        self.depth += 1;
    }

    fn end_structure(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn member(&mut self, name: &str) {
        if self.depth == 1 {
            self.member = match self.scope {
                Some(Scope::Payload) => Member::of(name),
                Some(Scope::CommonContext) if name == "vpid" => Some(Member::Field(Field::Pid)),
                Some(Scope::CommonContext) if name == "vtid" => Some(Member::Field(Field::Tid)),
                _ => None,
            };
        }
    }

    fn unsigned(&mut self, value: u64, _: NumberFormat<'_>) {
        self.integer(value.into());
    }

    fn signed(&mut self, value: i64, _: NumberFormat<'_>) {
        self.integer(value.into());
    }

    fn boolean(&mut self, value: bool) {
        self.integer(value.into());
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.depth != 1 || self.scope != Some(Scope::Payload) {
            return;
        }
        let place = self.member.and_then(Member::place);
        if let Some(place) = place.and_then(|place| self.places.get_mut(place)) {
            let begin = self.texts.len();
            self.texts.extend_from_slice(bytes);
            *place = Some(begin..self.texts.len());
        }
    }
}
