//! A hostile program that scribbles over its rings and its `meta` while the consumer reads them:
//! the consumer neither ends nor stalls, and other programs lose nothing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::relay::Relay;
use tests::wait_until;

use crate::kills::random;
use crate::system::{Agent, Shown, Writer, Writing, directories, rings, session_directory};

/// Seconds of scribbling, unless the environment says another number.
const DEFAULT_SECONDS: u64 = 5;
/// Pause between two scribbles.
const SCRIBBLE_PAUSE: Duration = Duration::from_micros(300);
/// Scribbles over a process until the next one is started.
const SCRIBBLES_PER_VICTIM: usize = 600;
/// Events of each program that must lose none.
const EVENTS: u64 = 300;

fn duration() -> Duration {
    let seconds = std::env::var("RING_SCRIBBLE_SECONDS");
    Duration::from_secs(seconds.map_or(DEFAULT_SECONDS, |seconds| seconds.parse().unwrap()))
}

#[test]
fn program_that_scribbles_over_its_rings_harms_no_other() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut random = random();
    let agent = Agent::start(&lab, &relay, &[]);
    let until = Instant::now() + duration();
    let mut written = Vec::new();
    while Instant::now() < until {
        let name = written.len();
        let victim = start_victim(&lab, &format!("victim-{name}"), &mut random);
        let path = directory_of(&lab, victim.pid());
        let writing = Writing {
            events: EVENTS,
            pause: Duration::from_millis(1),
            ..Writing::default()
        };
        let other = Writer::start(&lab, &format!("other-{name}"), writing);
        for _ in 0..SCRIBBLES_PER_VICTIM {
            // The victim may be dead, and its directory removed.
            let _ = scribble(&path, &mut random);
            std::thread::sleep(SCRIBBLE_PAUSE);
        }
        // While the victim is still read, the consumer finds, drains and removes another program.
        let other = other.end();
        let of_other = format!("{}-", other.pid);
        wait_until("another program is drained", || {
            let _ = scribble(&path, &mut random);
            let is_of_other = |name: &String| name.starts_with(&of_other);
            !directories(&lab).iter().any(is_of_other)
        });
        victim.kill();
        written.push(other);
    }
    agent.stop_with_live_programs();
    for written in &written {
        let shown = Shown::read(&session_directory(&relay.output, written.pid));
        shown.assert_without_loss(written);
        assert_eq!(shown.count(), EVENTS);
    }
}

fn start_victim(lab: &tests::Lab, name: &str, random: &mut Rng) -> Writer {
    let mode = ["discard", "overwrite"][random.usize(0..2)];
    let writing = Writing {
        threads: 2,
        environment: &[("TRACE_RING", mode), ("TRACE_RING_SIZE", "64K")],
        pause: Duration::from_micros(50),
        ..Writing::default()
    };
    let victim = Writer::start(lab, name, writing);
    victim.wait_for_events(1);
    victim
}

/// Returns the directory of a living process.
fn directory_of(lab: &tests::Lab, pid: u32) -> std::path::PathBuf {
    let prefix = format!("{pid}-");
    let names = directories(lab);
    let name = names.iter().find(|name| name.starts_with(&prefix));
    rings(lab).join(name.unwrap())
}

/// Changes one of the files of a process.
fn scribble(directory: &Path, random: &mut Rng) -> io::Result<()> {
    let files: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    let Some(file) = random.choice(&files) else {
        return Ok(());
    };
    let file = File::options().write(true).open(file.path())?;
    let size = file.metadata()?.len();
    match random.u32(0..1000) {
        // The victim may die of SIGBUS.
        0 => file.set_len(random.u64(0..2 * size + 1)),
        1..300 => {
            let word = arbitrary_word(random, size).to_le_bytes();
            // The control words and the sub-buffer table, or the records of `meta`.
            let offset = random.u64(64..512) * 8;
            file.write_all_at(&word, offset)
        }
        300..310 => write_arbitrary(&file, random.u64(0..128), random),
        _ => write_arbitrary(&file, random.u64(0..size + 1), random),
    }
}

/// Returns a number that is likely to be wrong in some way.
fn arbitrary_word(random: &mut Rng, size: u64) -> u64 {
    match random.u32(0..4) {
        0 => random.u64(..),
        1 => random.u64(0..size * 3 + 1),
        2 => 1 << random.u32(0..64),
        _ => random.u64(0..64) * 4096,
    }
}

fn write_arbitrary(file: &File, offset: u64, random: &mut Rng) -> io::Result<()> {
    let mut bytes = vec![0; random.usize(1..64)];
    random.fill(&mut bytes);
    file.write_all_at(&bytes, offset)
}
