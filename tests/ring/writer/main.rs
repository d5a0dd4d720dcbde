//! A traced program for the tests: `ring-writer PROGRESS THREADS EVENTS [PAUSE_US]`.
//!
//! Each thread writes numbered events, EVENTS of them or without end if that is 0. After each event
//! it writes the number of its events so far to the file PROGRESS, eight bytes per thread: an event
//! that is counted there was finished. Then it pauses.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use trace_ring_core::event;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("PROGRESS");
    let mut number = || {
        arguments
            .next()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let threads = number().expect("THREADS");
    let events = number().expect("EVENTS");
    let pause = Duration::from_micros(number().unwrap_or(0));
    let mut options = OpenOptions::new();
    let progress = options.write(true).create(true).truncate(false).open(path);
    let progress = &progress.expect("the progress file");
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut written = 0_u64;
                while events == 0 || written < events {
                    event!(
                        Info,
                        "tick",
                        message = "a tick",
                        thread = thread,
                        number = written
                    );
                    written += 1;
                    let done = progress.write_all_at(&written.to_le_bytes(), thread * 8);
                    done.expect("progress is written");
                    if !pause.is_zero() {
                        thread::sleep(pause);
                    }
                }
            });
        }
    });
}
