//! The event headers of most traces: an event class id and a timestamp, together in at most eight
//! bytes. They are read by one load instead of step by step.

use crate::model::{ByteOrder, Role, Slot};
use crate::plan::{Choice, Plan, Read, Step};

/// An event header of an id and, right after it, a timestamp. Where the id selects what follows
/// (compact and extended headers of LTTng), only the ids that select a timestamp of fixed width are
/// read this way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShortHeader {
    pub(crate) alignment: u32,
    pub(crate) order: ByteOrder,
    pub(crate) id_bits: u8,
    /// Where the id is kept for the choice that it makes.
    pub(crate) id_slot: Option<Slot>,
    /// First and last id for which the header is short.
    pub(crate) ids: (u64, u64),
    pub(crate) time_bits: u8,
}

impl ShortHeader {
    /// The short form of a header that is decoded by `plan`; `None` if it has none.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let (alignment, steps) = match &*plan.steps {
            [Step::Align(alignment), steps @ ..] => (*alignment, steps),
            _ => return None,
        };
        let (id, time, ids) = match steps {
            [Step::Read(id), Step::Read(time)] if id.meaning.slot.is_none() => {
                (id, time, (0, u64::MAX))
            }
            [Step::Read(id), Step::Choose(choice)] => {
                let (time, ids) = selected_time(id, choice)?;
                (id, time, ids)
            }
            _ => return None,
        };
        let is_id = id.meaning.role == Some(Role::EventClassId) && !id.meaning.moves_clock;
        let is_time = time.meaning.moves_clock && time.meaning.slot.is_none();
        // `decode::short_header` takes eight bytes at once: the header must begin with a byte and
        // end within them. Any other is left to the plan.
        let is_plain = is_id
            && is_time
            && !(id.signed || time.signed || id.meaning.boolean || time.meaning.boolean)
            && time.meaning.role.is_none_or(|role| role == Role::Timestamp)
            && id.order == time.order
            && alignment >= 8
            && id.bits < 64
            && id.bits + time.bits <= 64;
        is_plain.then_some(Self {
            alignment,
            order: id.order,
            id_bits: id.bits,
            id_slot: id.meaning.slot,
            ids,
            time_bits: time.bits,
        })
    }
}

/// The timestamp that most ids select, and the first and last of these ids.
fn selected_time<'p>(id: &Read, choice: &'p Choice) -> Option<(&'p Read, (u64, u64))> {
    if Some(choice.selector) != id.meaning.slot || choice.signed || choice.optional {
        return None;
    }
    let times = choice.options.iter().enumerate();
    let times = times.filter_map(|(number, steps)| match &**steps {
        [Step::Read(time)] => Some((time, number)),
        // Both fields have the same order: the check between them cannot fail.
        [Step::Order(order), Step::Read(time)] if *order == id.order => Some((time, number)),
        _ => None,
    });
    let times =
        times.filter_map(|(time, number)| Some((time, choice.lookup.largest_range(number)?)));
    // Of the compact header of LTTng, ids 0 to 30 with 27 bits of time; 31 selects a full
    // timestamp.
    times.max_by_key(|(_, (low, high))| high - low)
}
