//! Background load: programs that keep all processors busy for part of the time, as neighbours on a
//! machine do.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::cpu;

/// First argument of the benchmark program when it runs as background load.
pub(crate) const NAME: &str = "noise";

/// Time of each burst, and of each pause after it.
const BURST: Duration = Duration::from_millis(3);

/// Background load that lasts until it is dropped: a thread per processor, busy for half of the
/// time, in a process of its own.
#[derive(Debug)]
pub(super) struct Noise(Child);

impl Noise {
    pub(super) fn start() -> Self {
        let program = std::env::current_exe().unwrap();
        Self(Command::new(program).arg(NAME).spawn().unwrap())
    }

    /// The processor time of the background load so far.
    pub(super) fn cpu(&self) -> Duration {
        cpu(self.0.id())
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        // Nothing can be done about an error in `drop`.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes background load until the process is killed.
pub(crate) fn run() {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for number in 0..threads {
            scope.spawn(move || make_noise(number));
        }
    });
}

fn make_noise(number: usize) {
    // Threads whose bursts begin at the same time would leave times at which the machine is idle.
    let burst = BURST + Duration::from_micros(300) * u32::try_from(number % 8).unwrap();
    loop {
        let begun = Instant::now();
        while begun.elapsed() < burst {
            std::hint::spin_loop();
        }
        thread::sleep(burst);
    }
}
