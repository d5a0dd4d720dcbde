//! A time of day that differs from that of the machine, for programs that a test starts.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::lab::Lab;
use tests::peers;
use tests::process::Process;

/// A shift that the test may change while programs run.
pub(crate) struct ShiftedClock {
    library: PathBuf,
    file: PathBuf,
}

impl ShiftedClock {
    /// Makes a shift of so many nanoseconds.
    pub(crate) fn new(lab: &Lab, name: &str, shift: i64) -> Self {
        let clock = Self {
            library: lab.path().join(format!("{name}.so")),
            file: lab.path().join(format!("{name}.shift")),
        };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clock/shifted_clock.c");
        let mut compile = Command::new(peers::program("cc"));
        compile
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .arg(source)
            .arg("-o")
            .arg(&clock.library);
        Process::start(&mut compile).wait().expect_success();
        fs::write(&clock.file, shift.to_ne_bytes()).unwrap();
        clock
    }

    /// Starts the program of a command with this time of day.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("CLOCK_SHIFT_FILE", &self.file);
    }

    /// Sets the time of day of running programs.
    pub(crate) fn set(&self, shift: i64) {
        // In place: the programs have mapped the file.
        let file = OpenOptions::new().write(true).open(&self.file).unwrap();
        file.write_all_at(&shift.to_ne_bytes(), 0).unwrap();
    }
}
