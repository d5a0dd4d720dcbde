//! Files that are cut off or changed.

use std::fs::File;
use std::io::{Seek, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection};

use super::ElfFile;
use crate::units::KnownUnits;

/// The time in which all that is asked of one broken file is answered. It takes milliseconds.
const LIMIT: Duration = Duration::from_secs(10);
/// Number of changed files.
const CHANGED: usize = 400;
/// Bytes that are changed in each of them.
const CHANGES: usize = 12;

const SOURCE: &str = "
static inline __attribute__((always_inline)) int inlined(int value) { return value * 3 + 1; }
__attribute__((noinline)) int called(int value) { return inlined(value) ^ inlined(value + 7); }
int main(int count, char **arguments) { (void) arguments; return called(count); }
";

/// The bytes of a program with debug information.
fn program() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("source.c"), SOURCE).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O2", "-o"]).arg(path("program"));
    assert!(cc.arg(path("source.c")).status().unwrap().success());
    std::fs::read(path("program")).unwrap()
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

/// Asks for the addresses of a file, and returns how many functions and lines are found.
fn ask(bytes: &[u8]) -> (usize, usize) {
    let begin = Instant::now();
    let mut found = (0, 0);
    if let Ok(elf) = ElfFile::read(file(bytes)) {
        let known = &mut KnownUnits::default();
        for address in (0..0x2000).chain([u64::MAX]) {
            let _ = elf.nearest_symbol(address);
            if let Some(debug) = &elf.debug {
                found.0 += usize::from(debug.function(known, address).is_some());
                found.1 += usize::from(debug.source(known, address).is_some());
            }
        }
    }
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    found
}

#[test]
fn a_whole_file_has_functions_and_lines() {
    let (functions, lines) = ask(&program());
    assert!(functions > 10 && lines > 5, "{functions} and {lines}");
}

#[test]
fn a_file_that_is_cut_off_ends_without_a_panic() {
    let program = program();
    for size in (0..program.len()).step_by(program.len() / 200) {
        ask(&program[..size]);
    }
}

#[test]
fn a_file_with_changed_bytes_ends_without_a_panic() {
    let program = program();
    let mut random = 1_u64;
    let mut next = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    let begin = begin_of_debug_info(&program).unwrap();
    let debug = begin..begin + (program.len() - begin) / 2;
    for round in 0..CHANGED {
        let mut changed = program.clone();
        // All over the file, or where the debug information and the sections are.
        let places = match round % 2 {
            0 => 0..program.len(),
            _ => debug.clone(),
        };
        for _ in 0..CHANGES {
            let place = places.start + next(places.len());
            changed[place] = match next(3) {
                0 => 0xff,
                1 => 0,
                _ => u8::try_from(next(256)).unwrap(),
            };
        }
        ask(&changed);
    }
}

/// Where the debug information begins in a file.
fn begin_of_debug_info(program: &[u8]) -> Option<usize> {
    let file = object::File::parse(program).ok()?;
    let (begin, _) = file.section_by_name(".debug_info")?.file_range()?;
    usize::try_from(begin).ok()
}
