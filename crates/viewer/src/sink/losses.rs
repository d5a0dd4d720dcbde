//! Reports of losses: the lines that `babeltrace2` prints on standard error, and a sum.

use std::io::{self, Write};

use ctf::decode::LostEvents;

use super::{Loss, Lost, Origin};
use crate::terminal::printable;
use crate::time::Nanoseconds;

/// Writes one line about `loss`. `time` writes a time as the times of events are shown.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_warning(
    out: &mut impl Write,
    loss: &Loss,
    origin: Origin<'_>,
    mut time: impl FnMut(Nanoseconds, &mut Vec<u8>),
) -> io::Result<()> {
    // Written at once, because other threads write to standard error too.
    let mut line = Vec::with_capacity(256);
    let lost = match loss.what {
        Lost::Events(LostEvents::Some) => "may have discarded events".to_owned(),
        Lost::Events(LostEvents::Count(n)) => format!("discarded {n} event{}", plural(n)),
        Lost::Packets(n) => format!("discarded {n} packet{}", plural(n)),
    };
    write!(line, "WARNING: Tracer {lost}")?;
    match (loss.begin, loss.end) {
        (Some(begin), Some(end)) => {
            line.extend_from_slice(b" between [");
            time(begin, &mut line);
            line.extend_from_slice(b"] and [");
            time(end, &mut line);
            line.push(b']');
        }
        _ => line.extend_from_slice(b" (unknown time range)"),
    }
    let (trace, stream) = (origin.trace, origin.stream);
    let name: String = printable(&trace.name).collect();
    write!(line, " in trace \"{name}\" ")?;
    match trace.uuid {
        Some(uuid) => write!(line, "(UUID: {uuid})")?,
        None => write!(line, "(no UUID)")?,
    }
    let path: String = printable(&stream.name).collect();
    let (class, id) = (stream.class, stream.id.unwrap_or(0));
    writeln!(
        line,
        " within stream \"{path}\" (stream class ID: {class}, stream ID: {id})."
    )?;
    out.write_all(&line)
}

const fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The sum of all losses so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LossSum {
    /// Events whose number is known.
    pub events: u64,
    /// Streams that may have lost events before their first packet ended; the number of lost events
    /// is unknown.
    pub uncertain: u64,
    /// The number of lost packets.
    pub packets: u64,
    /// Whether something could not be read: what is lost of that is unknown.
    pub is_partial: bool,
}

impl LossSum {
    /// Adds one more loss.
    pub fn add(&mut self, loss: &Loss) {
        match loss.what {
            Lost::Events(LostEvents::Count(count)) => {
                self.events = self.events.saturating_add(count)
            }
            Lost::Events(LostEvents::Some) => self.uncertain += 1,
            Lost::Packets(count) => self.packets = self.packets.saturating_add(count),
        }
    }

    /// Whether nothing was lost, as far as is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// `5 events and 1 packet lost`, or `nothing lost`; with an addition if not all could be read.
impl std::fmt::Display for LossSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing lost");
        }
        if let Self {
            events: 0,
            packets: 0,
            uncertain: 0,
            is_partial: true,
        } = self
        {
            return f.write_str("nothing lost in what could be read");
        }
        let mut joint = "";
        for (count, what) in [(self.events, "event"), (self.packets, "packet")] {
            if count > 0 {
                write!(f, "{joint}{count} {what}{}", plural(count))?;
                joint = " and ";
            }
        }
        if !joint.is_empty() {
            f.write_str(" lost")?;
        }
        if self.uncertain > 0 {
            let before = if joint.is_empty() { "" } else { "; " };
            let (count, plural) = (self.uncertain, plural(self.uncertain));
            write!(
                f,
                "{before}{count} stream{plural} may have lost events early"
            )?;
        }
        if self.is_partial {
            f.write_str("; not all could be read")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::TestOrigin;

    fn warning(what: Lost, begin: Option<Nanoseconds>, uuid: bool) -> String {
        let mut place = TestOrigin::new("host-a", "/t/s0");
        if !uuid {
            place.trace.uuid = None;
        }
        let loss = Loss {
            what,
            begin,
            end: Nanoseconds::new(20),
        };
        let mut out = Vec::new();
        let time = |time: Nanoseconds, line: &mut Vec<u8>| {
            line.extend_from_slice(format!("T{}", time.get()).as_bytes());
        };
        write_warning(&mut out, &loss, place.origin(), time).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_kind_of_loss_has_its_own_warning() {
        let whence = "within stream \"/t/s0\" (stream class ID: 3, stream ID: 4).\n";
        let known = "(UUID: abababab-abab-abab-abab-abababababab)";
        assert_eq!(
            warning(
                Lost::Events(LostEvents::Count(5)),
                Nanoseconds::new(10),
                true
            ),
            format!(
                "WARNING: Tracer discarded 5 events between [T10] and [T20] in trace \"host-a\" {known} {whence}"
            )
        );
        assert_eq!(
            warning(Lost::Events(LostEvents::Some), Nanoseconds::new(10), false),
            format!(
                "WARNING: Tracer may have discarded events between [T10] and [T20] in trace \"host-a\" (no UUID) {whence}"
            )
        );
        assert_eq!(
            warning(Lost::Packets(1), None, false),
            format!(
                "WARNING: Tracer discarded 1 packet (unknown time range) in trace \"host-a\" (no UUID) {whence}"
            )
        );
    }

    #[test]
    fn a_loss_sum_separates_counted_losses_from_uncounted_ones() {
        let mut sum = LossSum::default();
        assert_eq!(sum.to_string(), "nothing lost");
        for what in [
            Lost::Events(LostEvents::Count(2)),
            Lost::Events(LostEvents::Count(3)),
            Lost::Packets(1),
        ] {
            sum.add(&Loss {
                what,
                begin: None,
                end: None,
            });
        }
        assert_eq!(sum.to_string(), "5 events and 1 packet lost");
        sum.add(&Loss {
            what: Lost::Events(LostEvents::Some),
            begin: None,
            end: None,
        });
        assert_eq!(
            sum.to_string(),
            "5 events and 1 packet lost; 1 stream may have lost events early"
        );
        sum.is_partial = true;
        assert_eq!(
            sum.to_string(),
            "5 events and 1 packet lost; 1 stream may have lost events early; not all could be read"
        );
        let unread = LossSum {
            is_partial: true,
            ..LossSum::default()
        };
        assert_eq!(unread.to_string(), "nothing lost in what could be read");
        assert!(!unread.is_empty());
    }
}
