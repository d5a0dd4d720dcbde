//! Numbers of processes and threads that Perfetto tells apart. It knows numbers from 1 to 2^32 - 1:
//! another thread becomes the first one of its process, another process the number 0, and a name
//! gets a number that some other process may have.

use std::collections::HashMap;

use crate::event::{Event, OwnerId, member_of, write_text};
use crate::lanes::LanePlace;

/// The numbers from here on stand for ids that Perfetto does not know. Linux gives smaller ones.
const FIRST_INVENTED: i32 = 1 << 30;
/// Largest number of processes or threads with an invented number, and of threads whose names are
/// remembered. With one more, all are forgotten, and get others.
const MAX_REMEMBERED: usize = 1 << 16;
/// Largest number of bytes of the name of a thread that are remembered.
const MAX_NAME_BYTES: usize = 256;

/// What an invented number stands for.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Owner {
    Process(OwnerId<'static>),
    /// A thread of the process of this number.
    Thread(i32, OwnerId<'static>),
    /// A lane of the thread of this number, and its generation.
    Lane(i32, i32, u64, u64),
}

/// The numbers that stand for ids of processes and threads in one document.
#[derive(Debug, Default)]
pub(super) struct OwnerNumbers {
    invented: HashMap<Owner, i32>,
    /// The number of those so far.
    count: i32,
    /// The names of threads, for those of their lanes.
    names: HashMap<(i32, i32), Box<str>>,
    /// Records that name what has got a number, not taken yet.
    named: Vec<Event<'static>>,
}

impl OwnerNumbers {
    /// Gives an event numbers that Perfetto knows.
    pub(super) fn renumber(&mut self, event: &mut Event<'_>) {
        let is_plain = |number: Option<i32>| number.is_none_or(is_known);
        // Nearly all events have numbers that Perfetto knows, and are left as they are.
        if event.rest.is_empty() && is_plain(event.pid) && is_plain(event.tid) {
            return;
        }
        let process = event.process().map(OwnerId::into_owned);
        let thread = event.thread().map(OwnerId::into_owned);
        let number = process.as_ref().map(|process| self.process(process));
        if let Some(number) = number {
            event.set_owner(false, number);
        }
        let Some(thread) = thread else { return };
        let thread = match number {
            // The first thread has the id of its process.
            Some(number) if Some(&thread) == process.as_ref() => number,
            // Without a process, Perfetto takes the number 0.
            _ => self.thread(number.unwrap_or(0), thread),
        };
        event.set_owner(true, thread);
    }

    /// Remembers the name that an event gives to a thread.
    pub(super) fn learn_name(&mut self, event: &Event<'_>) {
        let args = event.args.or_else(|| member_of(&event.rest, "args"));
        let name = args.and_then(|args| member_of(args, "name"));
        let name = name.and_then(|name| serde_json::from_str::<String>(name).ok());
        if let Some((thread, mut name)) = event.tid.or(event.pid).zip(name) {
            if self.names.len() >= MAX_REMEMBERED {
                self.names.clear();
            }
            name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
            let thread = (event.pid.unwrap_or(0), thread);
            self.names.insert(thread, name.into());
        }
    }

    /// The number of a lane of a thread.
    pub(super) fn lane(&mut self, process: i32, thread: i32, placed: LanePlace) -> i32 {
        let LanePlace { lane, generation } = placed;
        let owner = Owner::Lane(process, thread, lane, generation);
        if let Some(number) = self.invented.get(&owner) {
            return *number;
        }
        let known = self.names.get(&(process, thread));
        let name = known.map_or_else(|| thread.to_string(), |name| name.to_string());
        self.invent(
            owner,
            "thread_name",
            Some(process),
            &format!("{name} (lane {})", lane + 1),
        )
    }

    /// The records that name what has got a number since the last call.
    pub(super) fn take_named(&mut self) -> Vec<Event<'static>> {
        std::mem::take(&mut self.named)
    }

    fn process(&mut self, id: &OwnerId<'static>) -> i32 {
        let owner = Owner::Process(id.clone());
        own_number(id)
            .or_else(|| self.invented.get(&owner).copied())
            .unwrap_or_else(|| self.invent(owner, "process_name", None, &id.to_string()))
    }

    fn thread(&mut self, process: i32, id: OwnerId<'static>) -> i32 {
        let (own, name) = (own_number(&id), id.to_string());
        let owner = Owner::Thread(process, id);
        own.or_else(|| self.invented.get(&owner).copied())
            .unwrap_or_else(|| self.invent(owner, "thread_name", Some(process), &name))
    }

    fn invent(
        &mut self,
        owner: Owner,
        what: &'static str,
        process: Option<i32>,
        name: &str,
    ) -> i32 {
        // All at once: to forget the oldest would take a second list for a case that is rare.
        if self.invented.len() >= MAX_REMEMBERED {
            self.invented.clear();
        }
        let number = FIRST_INVENTED + self.count;
        // The numbers begin again before they leave an `i32`.
        self.count = (self.count + 1) % FIRST_INVENTED;
        self.invented.insert(owner, number);
        let mut args = b"{\"args\":{\"name\":".to_vec();
        write_text(name, &mut args);
        args.extend_from_slice(b"}}");
        self.named.push(Event {
            name: Some(what.into()),
            pid: Some(process.unwrap_or(number)),
            tid: Some(number),
            rest: String::from_utf8(args).unwrap_or_default().into(),
            ..Event::new("M")
        });
        number
    }
}

/// The number that an id is, if Perfetto knows it.
fn own_number(id: &OwnerId<'_>) -> Option<i32> {
    let number = id.number().and_then(|number| i32::try_from(number).ok());
    number.filter(|number| is_known(*number))
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
        let events = lines.iter().map(|line| {
            let Ok(Record::Event(mut event)) = Record::parse(line) else {
                panic!("{line}");
            };
            numbers.renumber(&mut event);
            assert!(!event.rest.contains("id\""), "{line}: {}", event.rest);
            (event.pid, event.tid)
        });
        let events = events.collect();
        let named = numbers.take_named().into_iter().map(|event| {
            let mut json = Vec::new();
            event.write_json(&mut json);
            serde_json::from_slice(&json).unwrap()
        });
        (events, named.collect())
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
        for tid in 0..2 * MAX_REMEMBERED {
            let line = format!(r#"{{"ph":"i","pid":1,"tid":"t{tid}"}}"#);
            let Ok(Record::Event(mut event)) = Record::parse(&line) else {
                panic!("{line}");
            };
            numbers.renumber(&mut event);
            numbers.take_named();
            assert!(numbers.invented.len() <= MAX_REMEMBERED);
        }
    }
}
