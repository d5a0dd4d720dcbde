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

    /// Learns what is mapped in the process of an event. The events of a trace come in order.
    ///
    /// # Errors
    /// If its fields cannot be decoded.
    pub(super) fn learn(&self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), FieldError> {
        match &self.0 {
            Some(debug_info) => debug_info.lock().learn(event, origin),
            None => Ok(()),
        }
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

    /// Takes the warnings about files that are not used.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        let debug_info = self.0.as_ref();
        debug_info.map_or_else(Vec::new, |debug_info| debug_info.lock().take_warnings())
    }

    /// Forgets a trace of which no event is kept.
    pub(super) fn forget_trace(&self, trace: TraceKey) {
        if let Some(debug_info) = &self.0 {
            debug_info.lock().forget_trace(trace);
        }
    }
}
