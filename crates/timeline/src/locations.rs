//! What the addresses in events are, for events of any time of the history.

use std::fmt;

use ctf::decode::{Event, FieldError};
use parking_lot::Mutex;
use viewer::attach::TraceKey;
use viewer::interpret::debug_info::{DebugInfo, EventLocations};
use viewer::sink::Origin;

/// Finds what addresses are, for all threads. Without `--debug-info` nothing is found.
#[derive(Default)]
pub(super) struct Locations(Option<Mutex<DebugInfo>>);

impl fmt::Debug for Locations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locations").finish_non_exhaustive()
    }
}

impl Locations {
    pub(super) fn new(debug_info: Option<DebugInfo>) -> Self {
        Self(debug_info.map(|debug_info| Mutex::new(debug_info.with_past())))
    }

    /// Learns what is mapped in the process of an event, and says what the addresses in it are. The
    /// events of a trace come in order. Returns warnings about files that are not used, too.
    ///
    /// # Errors
    /// If its fields cannot be decoded.
    pub(super) fn learn(
        &self,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> Result<(Option<EventLocations>, Vec<String>), FieldError> {
        let Some(debug_info) = &self.0 else {
            return Ok((None, Vec::new()));
        };
        let mut debug_info = debug_info.lock();
        debug_info.learn(event, origin)?;
        debug_info.locate(event, origin)?;
        let locations = debug_info.locations().clone();
        Ok((Some(locations), debug_info.take_warnings()))
    }

    /// What the addresses in an event are. Absent without `--debug-info`.
    ///
    /// # Errors
    /// If its fields cannot be decoded.
    pub(super) fn locate(
        &self,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> Result<Option<EventLocations>, FieldError> {
        let Some(debug_info) = &self.0 else {
            return Ok(None);
        };
        let mut debug_info = debug_info.lock();
        debug_info.locate(event, origin)?;
        Ok(Some(debug_info.locations().clone()))
    }

    /// Forgets a trace of which no event is kept.
    pub(super) fn forget_trace(&self, trace: TraceKey) {
        if let Some(debug_info) = &self.0 {
            debug_info.lock().forget_trace(trace);
        }
    }
}
