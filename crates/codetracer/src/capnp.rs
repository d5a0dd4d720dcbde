//! `trace.bin` of version 0: one Cap'n Proto message, packed.
//!
//! [`message`] finds structures and lists in the message; [`layout`] knows where the fields of the
//! published schema are (`codetracer_trace_format_capnp` 0.16, schema id `0xef886fa1a670cf6f`), and
//! writes the JSON of each event. The library for Cap'n Proto is not used: its builds need a
//! program that few machines have.

mod layout;
mod message;

pub(crate) use message::{Message, MessageError, Unpacker};

use message::List;

/// The events of a message, one after another.
#[derive(Debug)]
pub(crate) struct EventList {
    message: Message,
    events: List,
    next: usize,
    json: String,
}

impl EventList {
    /// Finds the list of events.
    pub(crate) fn open(message: Message) -> Result<Self, MessageError> {
        let root = message.root()?;
        let events = message.list(message.pointer(root, 0))?;
        Ok(Self {
            message,
            events,
            next: 0,
            json: String::new(),
        })
    }

    /// Writes the JSON of the next event. `None` at the end; an error concerns this event only.
    pub(crate) fn next_event(&mut self) -> Option<Result<(), MessageError>> {
        let event = self.message.element(self.events, self.next)?;
        // Before the event is written: an error concerns this event only.
        self.next += 1;
        self.json.clear();
        Some(layout::write_event(&self.message, event, &mut self.json))
    }

    /// The JSON text of the last event.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    const EVERY_EVENT: &[u8] = include_bytes!("../tests/data/every-event.v0.bin");
    const ASSIGNMENT: &[u8] = include_bytes!("../tests/data/assignment-only.v0.bin");

    fn events(body: &[u8], length: usize) -> Result<Vec<String>, MessageError> {
        let mut unpacker = Unpacker::new(1 << 20);
        for piece in body.chunks(length) {
            unpacker.push(piece)?;
        }
        let mut list = EventList::open(unpacker.finish()?)?;
        let mut all = Vec::new();
        while let Some(event) = list.next_event() {
            event?;
            all.push(list.json().to_owned());
        }
        Ok(all)
    }

    #[test]
    fn events_of_every_kind_are_the_json_of_the_published_writer() {
        let json = include_str!("../tests/data/every-event.jsonl");
        let want: Vec<_> = json
            .lines()
            .filter(|line| !line.contains("BigInt"))
            .map(|line| line.replace(r#""Char","c""#, r#""Raw","r""#))
            .collect();
        for length in [1, 100, 10_000] {
            let all = events(&EVERY_EVENT[8..], length).unwrap();
            assert_eq!(all.len(), want.len());
            for (got, want) in all.iter().zip(&want) {
                assert_eq!(got, want);
                Record::parse(got).unwrap();
            }
        }
    }

    #[test]
    fn assignments_have_json_of_both_kinds() {
        let want = [
            r#"{"Assignment":{"to":0,"pass_by":"Value","from":{"kind":"Simple","variable_id":1}}}"#,
            r#"{"Assignment":{"to":0,"pass_by":"Reference","from":{"kind":"Compound","variable_ids":[1]}}}"#,
        ];
        assert_eq!(events(&ASSIGNMENT[8..], 100).unwrap(), want);
    }

    #[test]
    fn cut_and_damaged_messages_are_refused_without_a_panic() {
        for cut in 8..EVERY_EVENT.len() {
            assert!(events(&EVERY_EVENT[8..cut], 100).is_err(), "{cut}");
        }
        for at in 8..EVERY_EVENT.len() {
            for bit in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = EVERY_EVENT[8..].to_vec();
                damaged[at - 8] ^= bit;
                drop(events(&damaged, 1000));
            }
        }
    }

    #[test]
    fn an_unpacked_message_has_a_limit() {
        let zeros = [0, 0xff].repeat(10_000);
        let mut unpacker = Unpacker::new(1 << 20);
        assert!(matches!(
            unpacker.push(&zeros),
            Err(MessageError::TooLong(_))
        ));
    }
}
