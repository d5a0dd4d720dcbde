//! The locations of one event.

use std::sync::Arc;

use crate::symbolizer::Location;

/// What the addresses in one event are.
#[derive(Debug, Clone, Default)]
pub struct EventLocations {
    /// What the context `ip` is; with empty texts if that is not known. Absent if events of the
    /// class have no contexts `ip` and `vpid`.
    pub ip: Option<Arc<Location>>,
    /// What the function is that the event says is entered or left. (`addr`)
    pub function: Option<Arc<Location>>,
    /// Where that function was called. (`call_site`)
    pub call_site: Option<Arc<Location>>,
}

impl EventLocations {
    /// The name of the function that is entered or left. None if it is not known.
    #[must_use]
    pub fn function_name(&self) -> Option<&str> {
        let name = &*self.function.as_ref()?.name;
        Some(name).filter(|name| !name.is_empty())
    }

    /// What is known, as fields for people: functions with offsets, and the source line.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let (ip, function) = (self.ip.as_deref(), self.function.as_deref());
        let line_of = ip.or(function);
        let texts = [
            ("func", ip.map(|ip| &*ip.function)),
            ("src", line_of.map(|line_of| &*line_of.source)),
            (
                "caller",
                self.call_site.as_deref().map(|site| &*site.function),
            ),
        ];
        let known = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name, text?)));
        known.filter(|(_, text)| !text.is_empty())
    }

    /// What is known of the addresses, each with the name of its field.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, &Location)> {
        let all = [
            ("ip", &self.ip),
            ("addr", &self.function),
            ("call_site", &self.call_site),
        ];
        let known = all.into_iter().filter_map(|(field, location)| {
            let location = location.as_deref()?;
            Some((field, location))
        });
        known.filter(|(_, location)| !location.binary.is_empty())
    }
}
