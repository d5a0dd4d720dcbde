//! A program in a pseudo terminal, which `script` of util-linux provides: tests press keys and see
//! what is drawn, as `vt100` interprets it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::Lab;
use crate::process::{CompletedProcess, Process};
use crate::wait_until;

/// A program in a terminal of its own.
#[derive(Debug)]
pub struct Terminal {
    process: Process,
    keys: ChildStdin,
    directory: PathBuf,
    /// Number of columns, and of rows.
    size: (u16, u16),
    /// The number of bytes that had been written when the terminal got this size: then all is drawn
    /// again.
    begin: usize,
}

/// What is left of a program that ran in a terminal.
#[derive(Debug)]
pub struct LeftTerminal {
    /// The exit status of the program, as the shell reports it.
    pub status: String,
    /// Everything that was written to the terminal.
    pub output: String,
    /// The text on the terminal.
    pub screen: String,
    /// Whether the terminal has the settings that it had before.
    pub is_restored: bool,
}

impl Terminal {
    /// Starts a program with these arguments in a terminal of this size.
    ///
    /// # Panics
    /// If the command cannot be started.
    #[must_use]
    pub fn start(lab: &Lab, (columns, rows): (u16, u16), command: &Command) -> Self {
        let directory = lab.directory("terminal");
        let program = command.get_program().to_str().unwrap();
        let arguments = command.get_args().map(|word| word.to_str().unwrap());
        let words: Vec<String> = [program]
            .into_iter()
            .chain(arguments)
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect();
        let words = words.join(" ");
        let shell = format!(
            "cd terminal && tty > tty && stty rows {rows} cols {columns} && stty -a > before && \
             (sh -c 'echo $$ > pid; exec \"$@\"' sh {words}; echo $? > status); \
             stty rows {rows} cols {columns}; stty -a > after"
        );
        let mut script = lab.command("script");
        script
            .args(["--quiet", "--flush", "--command", &shell, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped());
        let mut process = Process::start(&mut script);
        let keys = process.stdin().unwrap();
        Self {
            process,
            keys,
            directory,
            size: (columns, rows),
            begin: 0,
        }
    }

    /// Presses keys.
    ///
    /// # Panics
    /// If the terminal is gone.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until `text` is on the terminal.
    ///
    /// # Panics
    /// If it is not there in time.
    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("the terminal shows {text:?}"), || {
            let output = self.process.stdout_bytes();
            screen_after(self.size, &output[self.begin..]).contains(text)
        });
    }

    /// Returns the number of bytes that have been written so far.
    #[must_use]
    pub fn written(&self) -> usize {
        self.process.stdout_bytes().len()
    }

    /// Gives the terminal another size.
    ///
    /// # Panics
    /// If it cannot be changed.
    pub fn resize(&mut self, (columns, rows): (u16, u16)) {
        (self.begin, self.size) = (self.written(), (columns, rows));
        let tty = fs::read_to_string(self.directory.join("tty")).unwrap();
        let size = ["rows", &rows.to_string(), "cols", &columns.to_string()];
        let mut stty = Command::new("stty");
        stty.args(["-F", tty.trim()]).args(size);
        assert!(stty.status().unwrap().success());
    }

    /// Sends a signal to the program, not to the terminal.
    ///
    /// # Panics
    /// If the program has not started.
    pub fn signal(&self, signal: Signal) {
        let pid = fs::read_to_string(self.directory.join("pid")).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the program has ended.
    ///
    /// # Panics
    /// If it does not end in time.
    #[must_use]
    pub fn wait(self) -> LeftTerminal {
        let CompletedProcess { stdout_bytes, .. } = self.process.wait();
        let read = |name: &str| fs::read_to_string(self.directory.join(name)).unwrap();
        LeftTerminal {
            status: read("status").trim().to_owned(),
            screen: screen_after(self.size, &stdout_bytes[self.begin..]),
            output: String::from_utf8_lossy(&stdout_bytes).into_owned(),
            is_restored: read("before") == read("after"),
        }
    }
}

/// Returns the text on a terminal of this size after `output`.
fn screen_after((columns, rows): (u16, u16), output: &[u8]) -> String {
    let mut parser = vt100::Parser::new(rows, columns, 0);
    parser.process(output);
    parser.screen().contents()
}
