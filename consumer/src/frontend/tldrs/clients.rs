//! The clients of a trace, and the offset between their clocks and the trace's clock.

use std::collections::HashMap;

use tef::ctf::Client;
use tef::{Event, Record};
use wire::Timestamp;

/// The clients that are connected, by their number in the session. The numbers in the trace begin
/// at 0 again whenever the trace is opened again; those in the session are never reused.
#[derive(Debug, Default)]
pub(super) struct ConnectedClients {
    connected: HashMap<u32, ConnectedClient>,
    /// Added to the numbers in the trace, so that none is used twice in a session.
    base: u32,
    /// The lowest number that has not been used yet.
    next: u32,
}

/// A client that is connected.
#[derive(Debug)]
pub(super) struct ConnectedClient {
    pid: u32,
    uid: u32,
    exe: String,
    offset: Option<i64>,
}

impl ConnectedClients {
    /// Returns the number in the session of a client of the trace.
    pub(super) fn session_number(&mut self, client: u32) -> u32 {
        // After four billion clients, a number that is used twice is better than no number.
        let number = self.base.wrapping_add(client);
        self.next = self.next.max(number.wrapping_add(1));
        number
    }

    /// Removes all clients when the trace is opened again: its clients are new ones.
    pub(super) fn reset_for_reopen(&mut self) {
        self.connected.clear();
        self.base = self.next;
    }

    /// Adds a client that has connected. Returns the event for it.
    pub(super) fn add_client(
        &mut self,
        number: u32,
        pid: u32,
        uid: u32,
        exe: String,
    ) -> Client<'_> {
        let connected = ConnectedClient {
            pid,
            uid,
            exe,
            offset: None,
        };
        let connected = self.connected.entry(number).insert_entry(connected);
        connected.into_mut().describe(number, true)
    }

    /// Removes a client that has disconnected.
    pub(super) fn remove_client(&mut self, number: u32) -> Option<ConnectedClient> {
        self.connected.remove(&number)
    }

    /// Updates the offset of a client's clock from one of its events, received at `at`. The
    /// client's clock is behind the trace's by at most the time from the end of the event to `at`:
    /// an event is sent after its end.
    pub(super) fn update_clock_offset(&mut self, number: u32, record: &Record<'_>, at: Timestamp) {
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
        connected.offset = Some(connected.offset.map_or(behind, |offset| offset.min(behind)));
    }
}

impl ConnectedClient {
    /// Returns the event that the client has connected (`opened`) or disconnected.
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
