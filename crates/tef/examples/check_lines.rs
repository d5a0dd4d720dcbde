//! Checks lines of Trace Event Format on standard input. Valid and repaired lines go to standard
//! output, the reasons why others were rejected to standard error:
//! `cargo run -p tef --example check_lines < FILE`.

use std::io::{self, BufRead, Write};

use tef::{Checked, Record};

fn main() -> io::Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().split(b'\n') {
        let line = line?;
        let line = match tef::check(&line) {
            Checked::Valid(line) => line.to_owned(),
            Checked::Repaired(line, _) => line,
            Checked::Rejected(reason) => {
                eprintln!("rejected: {reason}");
                continue;
            }
        };
        if let Ok(Record::Event(event)) = Record::parse(&line) {
            eprintln!("{:?} {:?}", event.name, event.ts);
        }
        writeln!(output, "{line}")?;
    }
    Ok(())
}
