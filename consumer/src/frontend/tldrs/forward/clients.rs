//! Who is connected to a trace, and how far their clocks are from the trace's.

use std::collections::HashMap;

use tef::ctf::Client;
use tef::{Event, Record};
use wire::Timestamp;

/// The clients of a session. Their numbers begin anew whenever the trace is opened again.
#[derive(Debug, Default)]
pub(super) struct Clients {
    connected: HashMap<u32, Connected>,
    /// Added to numbers, so that none comes twice in a session.
    base: u32,
    /// The next number that has not come yet.
    next: u32,
}

/// A client that is connected.
#[derive(Debug)]
pub(super) struct Connected {
    pid: u32,
    uid: u32,
    exe: String,
    offset: Option<i64>,
}

impl Clients {
    /// The number that a client has in the session.
    pub(super) fn number(&mut self, client: u32) -> u32 {
        let number = self.base.wrapping_add(client);
        self.next = self.next.max(number.wrapping_add(1));
        number
    }

    /// The trace has been opened again: its clients are other ones.
    pub(super) fn begin_again(&mut self) {
        self.connected.clear();
        self.base = self.next;
    }

    /// What is said of a client that has connected.
    pub(super) fn opened(&mut self, number: u32, pid: u32, uid: u32, exe: String) -> Client<'_> {
        let connected = Connected {
            pid,
            uid,
            exe,
            offset: None,
        };
        let connected = self.connected.entry(number).insert_entry(connected);
        connected.into_mut().describe(number, true)
    }

    /// A client has gone.
    pub(super) fn closed(&mut self, number: u32) -> Option<Connected> {
        self.connected.remove(&number)
    }

    /// A client's event has arrived. The client's clock is at least so far behind the trace's as its
    /// event is when it ends: an event is sent after that.
    pub(super) fn arrived(&mut self, number: u32, record: &Record<'_>, at: Timestamp) {
        let Record::Event(Event {
            ts: Some(begin),
            dur,
            ..
        }) = record
        else {
            return;
        };
        let Some(connected) = self.connected.get_mut(&number) else {
            return;
        };
        let end = begin.saturating_add(dur.unwrap_or(0));
        let at = i64::try_from(at.0).unwrap_or(i64::MAX);
        let behind = at.saturating_sub(end);
        connected.offset = Some(connected.offset.map_or(behind, |least| least.min(behind)));
    }
}

impl Connected {
    /// What is said of it when it begins or ends.
    pub(super) fn describe(&self, number: u32, opened: bool) -> Client<'_> {
        Client {
            client: number,
            pid: i32::try_from(self.pid).ok().filter(|pid| *pid > 0),
            uid: self.uid,
            exe: &self.exe,
            opened,
            offset: self.offset,
        }
    }
}
