//! Events of classes of Trace Event Format: which of them are drawn, and when.

use ::perfetto::canvas::Canvas;
use ::perfetto::sent::SentEvents;
use ::perfetto::tracks::{Host, Place};
use ::tef::Record;
use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::perfetto::round_times;
use ctf::decode::{Event, FieldError};

use super::super::tef::SentTimes;

/// Draws events that were sent in Trace Event Format.
#[derive(Debug, Default)]
pub(super) struct SentRecords {
    decoder: RecordDecoder,
    events: SentEvents,
}

/// What was drawn: the time, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) time: i64,
    pub(super) place: Place,
}

/// How an event of a class of Trace Event Format was drawn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sent {
    Drawn(Drawn),
    /// There is nothing to draw.
    Nothing,
    /// The event is to be drawn as any other.
    Other,
}

impl SentRecords {
    /// Draws an event that was sent in Trace Event Format; `now` is the time of one without.
    pub(super) fn draw(
        &mut self,
        event: &Event<'_>,
        times: SentTimes,
        of: (Host<'_>, &str),
        now: i64,
        canvas: &mut Canvas,
    ) -> Result<Sent, FieldError> {
        let class = event.class().name().unwrap_or_default();
        if !RecordDecoder::is_known_class(class) {
            return Ok(Sent::Other);
        }
        self.decoder.clear();
        event.visit(&mut self.decoder)?;
        let record = match self.decoder.decode(class) {
            Some(Decoded::Record { record, .. }) => record,
            // What is lost has been reported where all losses are. On the clock of the host these
            // can be shown like any other, on that of the programs not.
            Some(_) if times == SentTimes::Producer => return Ok(Sent::Nothing),
            _ => return Ok(Sent::Other),
        };
        let mut sent = match record {
            Record::Event(sent) => sent,
            Record::Raw(_) if times == SentTimes::Producer => return Ok(Sent::Nothing),
            Record::Raw(_) => return Ok(Sent::Other),
        };
        round_times(&mut sent);
        let time = match (times, event.time()) {
            (SentTimes::Arrival, Some(arrival)) => {
                // A program sends a slice when it ends.
                let took = if sent.phase == "X" { sent.dur } else { None };
                arrival.saturating_sub(took.unwrap_or(0))
            }
            _ => sent.ts.unwrap_or(now),
        };
        Ok(match self.events.draw(&sent, time, of, canvas) {
            Some(place) => Sent::Drawn(Drawn { time, place }),
            None => Sent::Nothing,
        })
    }
}
