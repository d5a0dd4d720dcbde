//! The terminal: what it was before is restored on every way out.

use std::io::{self, Stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use viewer::run::Stop;

use super::messages::Messages;
use super::sampler::Sampler;
use super::stage::FilterRequest;
use super::state::{Action, State};
use super::unix_time;
use super::view::draw;

/// Longest time without a look at whether the program shall stop. Also the shortest time between
/// two samples: there are at most four pictures a second, besides those after a key.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time that a terminal has to take the output that leaves the screen, when the process ends at
/// once.
const RESTORE_TIMEOUT: Duration = Duration::from_millis(500);

/// Keys that are handled before the next picture.
const MAX_KEYS_PER_DRAW: usize = 256;

/// Whether the terminal is in the mode of the screen.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// A terminal that shows the screen until this is dropped, or the program panics.
struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    fn open() -> io::Result<Self> {
        let report_panic = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // The report would be lost on the other screen.
            restore_terminal();
            report_panic(panic);
        }));
        enable_raw_mode()?;
        // Set at once: from here on, the terminal has to be restored on every way out.
        IS_OPEN.store(true, Ordering::SeqCst);
        let opened = execute!(io::stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match opened {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                restore_terminal();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Leaves the screen, unless that has been done.
fn restore_terminal() {
    // Only the first of the threads that may come here restores the terminal.
    if IS_OPEN.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        // A terminal that is gone needs no restoring.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

/// Leaves the screen, if there is one, because the process ends at once. Does not wait for a
/// terminal that takes no output (Ctrl-S): only what it does with keys is restored then.
pub fn restore_terminal_before_exit() {
    // First, because this does not wait for output to be taken.
    let _ = disable_raw_mode();
    let (alive, is_restored) = mpsc::channel::<()>();
    thread::spawn(move || {
        let _alive = alive;
        restore_terminal();
    });
    let _ = is_restored.recv_timeout(RESTORE_TIMEOUT);
}

/// What the screen shows, and what it changes by keys.
pub(super) struct ShownScreen {
    pub(super) state: State,
    pub(super) sampler: Sampler,
    pub(super) interval: Duration,
    pub(super) messages: Messages,
    pub(super) request: Arc<FilterRequest>,
    /// Whether all sources have ended.
    pub(super) is_complete: Arc<AtomicBool>,
}

impl ShownScreen {
    /// Shows the screen until the user quits or `stop` is requested. Requests it in the end.
    ///
    /// # Errors
    /// If the terminal cannot be read or written.
    pub(super) fn show(mut self, stop: &Stop) -> io::Result<()> {
        // Also when this panics.
        let _stop_at_the_end = StopOnDrop(stop);
        let interval = self.interval.max(POLL_INTERVAL);
        let mut screen = Screen::open()?;
        // The first one soon: until then the screen is empty.
        let mut next_sample = Instant::now() + POLL_INTERVAL;
        self.draw(&mut screen)?;
        while !stop.is_requested() && IS_OPEN.load(Ordering::SeqCst) {
            let wait = next_sample.saturating_duration_since(Instant::now());
            let has_keys = event::poll(wait.min(POLL_INTERVAL))?;
            if has_keys && !self.handle_keys(stop)? {
                return Ok(());
            }
            let now = Instant::now();
            let is_due = now >= next_sample;
            if is_due {
                next_sample = now + interval;
                self.state.is_complete = self.is_complete.load(Ordering::Relaxed);
                if !self.state.is_paused {
                    self.sampler.sample(now, unix_time());
                }
            }
            if is_due || has_keys {
                self.draw(&mut screen)?;
            }
        }
        Ok(())
    }

    fn draw(&self, screen: &mut Screen) -> io::Result<()> {
        let message = self.messages.last();
        // A panic on another thread may have left the screen meanwhile.
        if IS_OPEN.load(Ordering::SeqCst) {
            let Screen(terminal) = screen;
            terminal.draw(|frame| draw(frame, &self.state, &self.sampler, message.as_ref()))?;
        }
        Ok(())
    }

    /// Handles the keys that were pressed. Returns false if the user quits.
    fn handle_keys(&mut self, stop: &Stop) -> io::Result<bool> {
        for _ in 0..MAX_KEYS_PER_DRAW {
            if !event::poll(Duration::ZERO)? {
                break;
            }
            // All else, such as a new size, needs only another picture.
            let Event::Key(key) = event::read()? else {
                continue;
            };
            // Some terminals also report when a key is let go.
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match self.state.handle_key(key, &self.sampler) {
                Action::Draw => {}
                Action::Filter(filter) => {
                    self.request.set(filter.map(|filter| *filter));
                    // The main thread applies the filter, and may be waiting for a source.
                    stop.wake();
                }
                Action::Quit => return Ok(false),
            }
        }
        Ok(true)
    }
}

struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}
