//! Which thread serves a session: the one that its control connection was given to. Data connections
//! say with their first packet whose they are, and go there, so that the two halves of a packet meet
//! without a thread waiting for another.

use std::collections::HashMap;

use parking_lot::Mutex;
use wire::SessionId;

use super::loops::{Place, Places};

/// Where the sessions are served whose producers are connected.
#[derive(Debug)]
pub(super) struct Homes {
    places: Places,
    sessions: Mutex<HashMap<SessionId, Place>>,
}

impl Homes {
    pub(super) fn new(places: Places) -> Self {
        let sessions = Mutex::default();
        Self { places, sessions }
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// A session is served there.
    pub(super) fn add(&self, session: SessionId, place: Place) {
        self.sessions.lock().insert(session, place);
    }

    /// Its producer is gone.
    pub(super) fn remove(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }

    /// Where a session is served.
    pub(super) fn of(&self, session: SessionId) -> Option<Place> {
        self.sessions.lock().get(&session).copied()
    }
}
