//! Events that programs have sent in this very format, as a `tldrs` daemon has recorded them: they
//! become again what they were.

use ::tef::ctf::{Found, Gather};
use ::tef::{Checked, Event as Sent, Record, check_str};
use ctf::decode::{Event, FieldError};

use super::records::{RecordTime, Records};
use super::{SentTimes, perfetto};

/// Writes such events as the records that they were.
#[derive(Debug, Default)]
pub(super) struct SentRecordWriter {
    gather: Gather,
    json: Vec<u8>,
    for_perfetto: Vec<u8>,
}

/// The options with which such events are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentRecordOptions {
    pub(super) times: SentTimes,
    pub(super) perfetto: bool,
}

impl SentRecordWriter {
    /// Whether events of a class of this name are such.
    pub(super) fn knows(class: &str) -> bool {
        Gather::understands(class)
    }

    /// Shows an event of such a class. Says whether it did: what a stranger has written under such
    /// a name is to be shown as any other.
    pub(super) fn show(
        &mut self,
        event: &Event<'_>,
        how: SentRecordOptions,
        records: &mut Records,
    ) -> Result<bool, FieldError> {
        self.gather.clear();
        event.visit(&mut self.gather)?;
        let class = event.class().name().unwrap_or_default();
        let Some(found) = self.gather.found(class) else {
            return Ok(false);
        };
        self.json.clear();
        let when = match found {
            Found::Record { record, .. } => write(record, event.time(), how, &mut self.json),
            // On the host's clock they can be shown like any other, on that of the programs not.
            Found::Client(_) | Found::Lost(_) if how.times == SentTimes::Arrival => {
                return Ok(false);
            }
            // What is lost has been said, and counted, where all losses are.
            Found::Client(_) | Found::Lost(_) => return Ok(true),
        };
        // What is kept as it was written may be anything in a trace that somebody else has made.
        let json = std::str::from_utf8(&self.json).map(check_str);
        let Ok(Checked::Valid(json)) = json else {
            return Ok(false);
        };
        let json = if how.perfetto {
            self.for_perfetto.clear();
            perfetto::copy(json, &mut self.for_perfetto);
            &self.for_perfetto
        } else {
            json.as_bytes()
        };
        if let [b'{', members @ .., b'}'] = json.trim_ascii() {
            records.add(when, members);
        }
        Ok(true)
    }
}

/// Writes an event without its `ts`, and says when it is.
fn write(
    record: Record<'_>,
    arrival: Option<i64>,
    how: SentRecordOptions,
    out: &mut Vec<u8>,
) -> RecordTime {
    let Record::Event(mut sent) = record else {
        record.write_json(out);
        return RecordTime::default();
    };
    if how.perfetto || how.times == SentTimes::Arrival {
        perfetto::settle_times(&mut sent);
    }
    let when = RecordTime {
        ts: time(&sent, arrival, how.times),
        dur: sent.dur.unwrap_or(0).into(),
        is_metadata: sent.phase == "M",
    };
    if how.perfetto {
        sent.phase = perfetto::phase(sent.phase);
    }
    sent.ts = None;
    sent.write_json(out);
    when
}

/// When it began. A slice arrives when it ends.
fn time(sent: &Sent<'_>, arrival: Option<i64>, times: SentTimes) -> Option<i128> {
    let ts = sent.ts.map(i128::from);
    match (times, arrival) {
        (SentTimes::Arrival, Some(arrival)) if sent.phase != "M" => {
            let took = if sent.phase == "X" { sent.dur } else { None };
            Some(i128::from(arrival) - i128::from(took.unwrap_or(0)))
        }
        _ => ts,
    }
}
