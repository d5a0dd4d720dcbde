//! A text that is drawn in place on a terminal, again and again, while events come.

use std::io::{self, Write};

/// The terminal sequence that moves the cursor home.
const HOME: &[u8] = b"\x1b[H";
/// Clears to the end of the line.
const CLEAR_LINE: &[u8] = b"\x1b[K";
/// Clears to the end of the screen.
const CLEAR_REST: &[u8] = b"\x1b[J";
/// Clears all of the screen.
pub(super) const CLEAR_ALL: &[u8] = b"\x1b[2J";

/// Number of events after which the clock is read.
const EVENTS_PER_CLOCK_READ: u32 = 1024;

/// Says after which events the clock is to be read: for each event that would take longer than to
/// count it.
#[derive(Debug)]
pub(crate) struct ClockReads {
    remaining: u32,
}

impl Default for ClockReads {
    fn default() -> Self {
        Self {
            remaining: EVENTS_PER_CLOCK_READ,
        }
    }
}

impl ClockReads {
    /// Counts an event. Returns whether the clock is to be read.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.remaining -= 1;
        let is_due = self.remaining == 0;
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

/// What has been drawn.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    is_drawn: bool,
}

impl Picture {
    /// Draws the lines of a text in place of the picture before.
    pub(crate) fn draw(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let mut picture = Vec::with_capacity(text.len() + 1024);
        // Only the first picture clears the screen: later ones overwrite it line by line.
        if !self.is_drawn {
            picture.extend_from_slice(CLEAR_ALL);
        }
        picture.extend_from_slice(HOME);
        for line in text.lines() {
            picture.extend_from_slice(line.as_bytes());
            picture.extend_from_slice(CLEAR_LINE);
            picture.extend_from_slice(b"\r\n");
        }
        picture.extend_from_slice(CLEAR_REST);
        self.is_drawn = true;
        out.write_all(&picture)?;
        out.flush()
    }

    /// Clears the screen, if something was drawn.
    pub(crate) fn clear(&self, out: &mut impl Write) -> io::Result<()> {
        if self.is_drawn {
            out.write_all(CLEAR_ALL)?;
            out.write_all(HOME)?;
        }
        Ok(())
    }
}

/// The size of the terminal: rows and columns.
pub(crate) fn terminal_size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    // The size of a VT100, for a terminal that does not say its own.
    size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()))
}
