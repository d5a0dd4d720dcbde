//! What a test has done and when, which is printed if it fails.

use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The seed of a run and its actions so far. All clones share them; the last one prints them if the
/// test fails.
#[derive(Debug, Clone)]
pub struct History(Arc<Run>);

#[derive(Debug)]
struct Run {
    title: String,
    begun: Instant,
    actions: Mutex<Vec<String>>,
}

impl History {
    /// Begins a run, and prints how to repeat its schedule.
    #[must_use]
    pub fn begin(scenario: &str, seed: u64) -> Self {
        let title = format!("{scenario}: FAULT_SEED={seed}");
        println!("{title}");
        let actions = Mutex::default();
        let begun = Instant::now();
        Self(Arc::new(Run {
            title,
            begun,
            actions,
        }))
    }

    /// Adds an action, with the time since the run began.
    ///
    /// # Panics
    /// If a thread of the test has panicked while it added one.
    pub fn record(&self, action: &str) {
        let at = self.0.begun.elapsed().as_secs_f64();
        let mut actions = self.0.actions.lock().unwrap();
        actions.push(format!("{at:9.3} s  {action}"));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let Self { title, actions, .. } = self;
        eprintln!("{title} failed; its schedule:");
        for action in actions.get_mut().map(std::mem::take).unwrap_or_default() {
            eprintln!("{action}");
        }
    }
}
