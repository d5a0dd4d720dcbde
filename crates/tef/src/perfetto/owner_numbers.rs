//! Numbers of processes and threads that Perfetto tells apart. It knows numbers from 1 to 2^32 - 1:
//! another thread becomes the first one of its process, another process the number 0, and a name
//! gets a number that some other process may have.

use std::collections::HashMap;

use crate::document::{RecordTime, Records};
use crate::event::{Event, OwnerId, write_text};

/// The numbers from here on stand for ids that Perfetto does not know. Linux gives smaller ones.
const FIRST_INVENTED: i32 = 1 << 30;
/// Largest number of processes or threads with an invented number. With one more, all are
/// forgotten, and get others.
const MAX_INVENTED: usize = 1 << 16;

/// The numbers that stand for ids of processes and threads in one document.
#[derive(Debug, Default)]
pub struct OwnerNumbers {
    /// The numbers of processes, without a process, and of threads, with the number of their
    /// process.
    invented: HashMap<(Option<i32>, OwnerId<'static>), i32>,
    /// The number of those so far.
    count: i32,
}

impl OwnerNumbers {
    /// Gives an event numbers that Perfetto knows. The records that name what has got another
    /// number are added to `records`, before those in which the program itself may name it.
    pub fn renumber(&mut self, event: &mut Event<'_>, records: &mut Records) {
        let is_plain = |number: Option<i32>| number.is_none_or(is_known);
        // Nearly all events have numbers that Perfetto knows, and are left as they are.
        if event.rest.is_empty() && is_plain(event.pid) && is_plain(event.tid) {
            return;
        }
        let process = event.process().map(OwnerId::into_owned);
        let thread = event.thread().map(OwnerId::into_owned);
        let number = process.as_ref().map(|process| {
            self.number(None, process)
                .unwrap_or_else(|| self.invent(None, process, records))
        });
        if let Some(number) = number {
            event.set_owner(false, number);
        }
        let Some(thread) = thread else { return };
        let thread = match number {
            // The first thread has the id of its process.
            Some(number) if Some(&thread) == process.as_ref() => number,
            _ => {
                // Without a process, Perfetto takes the number 0.
                let of = Some(number.unwrap_or(0));
                self.number(of, &thread)
                    .unwrap_or_else(|| self.invent(of, &thread, records))
            }
        };
        event.set_owner(true, thread);
    }

    /// The number of an id, unless one has to be invented.
    fn number(&self, process: Option<i32>, id: &OwnerId<'static>) -> Option<i32> {
        let own = id.number().and_then(|number| i32::try_from(number).ok());
        let invented = || self.invented.get(&(process, id.clone())).copied();
        own.filter(|number| is_known(*number)).or_else(invented)
    }

    fn invent(
        &mut self,
        process: Option<i32>,
        id: &OwnerId<'static>,
        records: &mut Records,
    ) -> i32 {
        // All at once: to forget the oldest would take a second list for a case that is rare.
        if self.invented.len() >= MAX_INVENTED {
            self.invented.clear();
        }
        let number = FIRST_INVENTED + self.count;
        // The numbers begin again before they leave an `i32`.
        self.count = (self.count + 1) % FIRST_INVENTED;
        self.invented.insert((process, id.clone()), number);
        let (what, pid) = match process {
            None => ("process_name", number),
            Some(process) => ("thread_name", process),
        };
        let mut members = format!(
            "\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{number},\"args\":{{\"name\":"
        )
        .into_bytes();
        write_text(&id.to_string(), &mut members);
        members.push(b'}');
        // Before the event itself: Perfetto takes the last name, which the program may give.
        records.add(RecordTime::METADATA, &members);
        number
    }
}

/// Whether Perfetto knows a number, and it stands for itself.
fn is_known(number: i32) -> bool {
    (1..FIRST_INVENTED).contains(&number)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::Record;

    /// Process and thread of an event.
    type Owner = (Option<i32>, Option<i32>);

    /// The owners of the events, and the records that name those.
    fn renumbered(lines: &[&str]) -> (Vec<Owner>, Vec<Value>) {
        let mut numbers = OwnerNumbers::default();
        let mut records = Records::new(true);
        let events = lines.iter().map(|line| {
            let Ok(Record::Event(mut event)) = Record::parse(line) else {
                panic!("{line}");
            };
            numbers.renumber(&mut event, &mut records);
            assert!(!event.rest.contains("id\""), "{line}: {}", event.rest);
            (event.pid, event.tid)
        });
        let events = events.collect();
        records.finish();
        let mut document: Value = serde_json::from_slice(&records.buffer).unwrap();
        let Value::Array(named) = document["traceEvents"].take() else {
            panic!("no records");
        };
        (events, named)
    }

    #[test]
    fn ids_that_perfetto_does_not_know_have_a_number_and_a_name_each() {
        let (first, second) = (Some(FIRST_INVENTED), Some(FIRST_INVENTED + 1));
        let (events, named) = renumbered(&[
            r#"{"ph":"B","pid":7,"tid":140589156634432}"#,
            r#"{"ph":"B","pid":7,"tid":"render"}"#,
            r#"{"ph":"E","pid":7,"tid":140589156634432,"x":1}"#,
            r#"{"ph":"B","pid":7,"tid":8}"#,
            r#"{"ph":"B","pid":7}"#,
        ]);
        let seven = Some(7);
        assert_eq!(
            events,
            [
                (seven, first),
                (seven, second),
                (seven, first),
                (seven, Some(8)),
                (seven, None)
            ]
        );
        let name = |tid, name: &str| {
            let args = serde_json::json!({"name": name});
            serde_json::json!({"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": args})
        };
        assert_eq!(
            named,
            [name(first, "140589156634432"), name(second, "render")]
        );
    }

    #[test]
    fn zero_is_a_process_and_a_thread_of_its_own() {
        let invented = |number: i32| Some(FIRST_INVENTED + number);
        let (events, named) = renumbered(&[
            r#"{"ph":"X","pid":0,"tid":0}"#,
            r#"{"ph":"X","pid":0,"tid":1}"#,
            r#"{"ph":"X","pid":1,"tid":0}"#,
            r#"{"ph":"X","pid":1,"tid":1}"#,
            r#"{"ph":"X","pid":"1","tid":"0"}"#,
            r#"{"ph":"C","pid":0}"#,
            r#"{"ph":"X","pid":-5,"tid":1073741824}"#,
        ]);
        assert_eq!(
            events,
            [
                (invented(0), invented(0)),
                (invented(0), Some(1)),
                (Some(1), invented(1)),
                (Some(1), Some(1)),
                (Some(1), invented(1)),
                (invented(0), None),
                (invented(2), invented(3)),
            ]
        );
        let names: Vec<_> = named.iter().map(|record| &record["args"]["name"]).collect();
        assert_eq!(names, ["0", "0", "-5", "1073741824"]);
    }

    #[test]
    fn the_number_of_invented_numbers_that_are_remembered_is_bounded() {
        let mut numbers = OwnerNumbers::default();
        let mut records = Records::new(false);
        for tid in 0..2 * MAX_INVENTED {
            let line = format!(r#"{{"ph":"i","pid":1,"tid":"t{tid}"}}"#);
            let Ok(Record::Event(mut event)) = Record::parse(&line) else {
                panic!("{line}");
            };
            numbers.renumber(&mut event, &mut records);
            assert!(numbers.invented.len() <= MAX_INVENTED);
        }
    }
}
