//! Events that programs have sent in this very format, as a `tldrs` daemon has recorded them: they
//! become again the records that were sent.

use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::document::Records;
use ::tef::event::OwnerId;
use ::tef::perfetto;
use ::tef::{Checked, Record, check_str};
use ctf::decode::{Event, FieldError};

use super::{SentTimes, TefOptions};

/// What an event was written as.
#[derive(Debug, Clone, Default)]
pub(super) struct SentRecord {
    /// The time of the record in nanoseconds. Absent if it has none.
    pub(super) ts: Option<i128>,
    /// The process that the record names.
    pub(super) process: Option<OwnerId<'static>>,
}

/// Writes events that were sent in Trace Event Format as the records that were sent.
#[derive(Debug, Default)]
pub(super) struct SentRecordWriter {
    decoder: RecordDecoder,
    json: Vec<u8>,
}

impl SentRecordWriter {
    /// Writes an event of a class of Trace Event Format. Returns what it became; `None` if it was
    /// not written: an event of another class, or of a foreign producer that uses the name, is to
    /// be shown as any other.
    pub(super) fn write_event(
        &mut self,
        event: &Event<'_>,
        options: &TefOptions,
        records: &mut Records,
    ) -> Result<Option<SentRecord>, FieldError> {
        let class = event.class().name().unwrap_or_default();
        if !RecordDecoder::is_known_class(class) {
            return Ok(None);
        }
        self.decoder.clear();
        event.visit(&mut self.decoder)?;
        let record = match self.decoder.decode(class) {
            Some(Decoded::Record { record, .. }) => record,
            // What is lost has been reported and counted where all losses are.
            Some(_) if options.sent == SentTimes::Producer => {
                return Ok(Some(SentRecord::default()));
            }
            // On the clock of the host these can be shown like any other, on that of the programs
            // not.
            _ => return Ok(None),
        };
        let process = match &record {
            Record::Event(sent) => sent.process().map(OwnerId::into_owned),
            Record::Raw(_) => None,
        };
        self.json.clear();
        let ts = write_record(record, event.time(), options, &mut self.json);
        // What is kept as it was written may be anything in a trace of a foreign producer.
        let json = std::str::from_utf8(&self.json).map(check_str);
        let Ok(Checked::Valid(json)) = json else {
            return Ok(None);
        };
        // The records add the time, and the braces with it.
        if let [b'{', members @ .., b'}'] = json.trim_ascii().as_bytes() {
            records.add(ts, members);
        }
        Ok(Some(SentRecord { ts, process }))
    }
}

/// Writes a record without its `ts`, and returns its time. `arrival` is in nanoseconds.
fn write_record(
    record: Record<'_>,
    arrival: Option<i64>,
    options: &TefOptions,
    out: &mut Vec<u8>,
) -> Option<i128> {
    let Record::Event(mut sent) = record else {
        record.write_json(out);
        return None;
    };
    if options.perfetto || options.sent == SentTimes::Arrival {
        perfetto::round_times(&mut sent);
    }
    let is_metadata = sent.phase == "M";
    let ts = match (options.sent, arrival) {
        (SentTimes::Arrival, Some(arrival)) if !is_metadata => {
            // A program sends a slice when it ends.
            let took = if sent.phase == "X" { sent.dur } else { None };
            Some(i128::from(arrival) - i128::from(took.unwrap_or(0)))
        }
        _ => sent.ts.map(i128::from),
    };
    // The records write it, because they may have to be put in order by it.
    sent.ts = None;
    sent.write_json(out);
    ts
}
