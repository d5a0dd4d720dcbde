//! What the producers of these tests do.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use trace_ring_core::format::FieldType;
use trace_ring_core::{CallSite, EventWriter, FieldTypes, Severity, Value, event};

use crate::calls::{exit_now, fork, handle_signal, raise_signal};

/// Runs as the producer of another test.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn run() {
    match std::env::var("SCENARIO").unwrap_or_default().as_str() {
        "emit-until-killed" => emit_until_killed(),
        "emit" => emit(number("COUNT")),
        "emit-in-steps" => emit_in_steps(number("STEPS"), number("COUNT")),
        "kinds" => every_kind_of_value(),
        "times" => times_of_clock(),
        "debug-noise" => debug_noise(),
        "sequential-threads" => sequential_threads(),
        "late" => events_of_destructors(),
        "close-all" => close_all_files(),
        "threads" => threads_at_once(number("THREADS")),
        "classes" => register_classes(number("COUNT")),
        "generic" => generic_call_site(),
        "nested" => nested_events(),
        "too-big" => too_big_events(),
        "fork" => fork_while_threads_emit(),
        "fork-and-end" => fork_and_end(),
        "exec" => exec_cat(),
        "filter" => wait_for_filter(),
        "" => {}
        other => panic!("no scenario {other}"),
    }
}

fn number(variable: &str) -> u64 {
    std::env::var(variable).unwrap().parse().unwrap()
}

/// Prints a line for `Producer::wait_for`.
fn say(line: &str) {
    println!("scenario: {line}");
}

/// Waits for `Producer::go_on`, or for the end of standard input.
fn wait() {
    let _ = std::io::stdin().read(&mut [0]).unwrap();
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
fn clock() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    u64::try_from(time.as_nanos()).unwrap()
}

fn times_of_clock() {
    let begin = clock();
    for n in 0..100_000_u64 {
        let before = clock();
        if n % 2 == 0 {
            event!(Info, "info", before = before);
        } else {
            event!(Debug, "debug", before = before);
        }
        // Enough for the counter to be used.
        if before > begin + 20_000_000 {
            break;
        }
    }
    event!(Info, "end", before = clock());
}

fn tick(thread: u32, n: u64) {
    event!(
        Info,
        "tick",
        thread = thread,
        n = n,
        text = "twenty-three characters"
    );
}

/// Emits at full speed, and says in a file, after each event, how many events each thread has
/// finished.
fn emit_until_killed() {
    let progress = File::create(std::env::var("PROGRESS").unwrap()).unwrap();
    let progress = &progress;
    std::thread::scope(|scope| {
        for thread in 0..u32::try_from(number("THREADS")).unwrap() {
            scope.spawn(move || {
                for n in 0.. {
                    tick(thread, n);
                    progress
                        .write_at(&u64::to_le_bytes(n + 1), u64::from(thread) * 8)
                        .unwrap();
                }
            });
        }
    });
}

fn emit(count: u64) {
    for n in 0..count {
        tick(0, n);
    }
    say("written");
    wait();
}

fn emit_in_steps(steps: u64, count: u64) {
    for step in 0..steps {
        (step * count..(step + 1) * count).for_each(|n| tick(0, n));
        say("step");
        wait();
    }
}

fn every_kind_of_value() {
    event!(
        Warn,
        "kinds",
        a = 1_u8,
        b = 2_u16,
        c = 3_u32,
        d = 4_u64,
        e = -1_i8,
        f = -2_i16,
        g = -3_i32,
        h = -4_i64,
        i = 0.5_f32,
        j = 0.25_f64,
        k = true,
        l = "text",
        m = [1_u8, 2][..],
        n = String::from("owned"),
        o = 7_usize,
    );
    event!(target: "app::db", Error, "empty");
    event!(Info, "long", text = "ä".repeat(50_000));
}

fn debug_noise() {
    event!(Error, "failure", n = 1_u64);
    say("before");
    wait();
    for n in 0..100_000_u64 {
        event!(Debug, "noise", n = n);
    }
}

fn sequential_threads() {
    for thread in 0..3 {
        std::thread::Builder::new()
            .name(format!("worker {thread}"))
            .spawn(move || tick(thread, 0))
            .unwrap()
            .join()
            .unwrap();
        say("ended");
        wait();
    }
}

/// Writes an event when its thread has ended its ring.
struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        tick(1, 1);
    }
}

fn events_of_destructors() {
    thread_local! {
        static LATE: Late = const { Late };
    }
    for _ in 0..3 {
        std::thread::spawn(|| {
            // Registered before the ring's own: destroyed after it.
            LATE.with(|_| ());
            tick(0, 0);
        })
        .join()
        .unwrap();
    }
}

/// Closes all files, as a daemon does when it starts.
fn close_all_files() {
    tick(0, 0);
    crate::calls::close_files_from(3);
    tick(0, 1);
    std::thread::spawn(|| tick(1, 0)).join().unwrap();
    say("closed");
    wait();
}

fn threads_at_once(count: u64) {
    let barrier = &Barrier::new(usize::try_from(count).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..u32::try_from(count).unwrap() {
            scope.spawn(move || {
                for n in 0..100 {
                    tick(thread, n);
                }
                barrier.wait();
            });
        }
    });
    say("written");
    wait();
}

/// Registers call sites that are made while the program runs, as a library for another language
/// makes them.
fn register_classes(count: u64) {
    static TYPES: FieldTypes = FieldTypes::new(&[FieldType::U64]);
    for n in 0..count {
        let name = format!("event {n} {}", "x".repeat(100)).leak();
        let site = CallSite::new(Severity::Info, "made", name, "", 0, &["n"]);
        let site = Box::leak(Box::new(site));
        let mut event = site.begin(&TYPES, n.size()).unwrap();
        event.put(&n);
        event.commit();
    }
}

fn generic_call_site() {
    fn write<V: Value>(value: V) {
        event!(Info, "generic", value = value);
    }
    for n in 0..10_u8 {
        write(n);
        write(i64::from(n) - 100);
        write("text");
    }
}

/// A value whose writing is interrupted by a signal.
struct Interrupted;

impl Value for Interrupted {
    const TYPE: FieldType = FieldType::U8;

    fn size(&self) -> usize {
        1
    }

    fn put(&self, event: &mut EventWriter) {
        raise_signal();
        event.put(&7_u8);
    }
}

fn nested_events() {
    handle_signal(|| event!(Warn, "in the handler"));
    for n in 0..5_u64 {
        event!(Info, "outer", n = n, value = Interrupted);
    }
    // Not in the middle of an event: nothing is lost.
    raise_signal();
}

fn too_big_events() {
    static SITE: CallSite = CallSite::new(Severity::Info, "t", "cut", "", 0, &["a", "b"]);
    static TYPES: FieldTypes = FieldTypes::new(&[FieldType::U64, FieldType::U64]);
    event!(Info, "small", n = 1_u64);
    event!(Info, "big", a = "x".repeat(60_000), b = "x".repeat(60_000));
    let mut cut = SITE.begin(&TYPES, 8).unwrap();
    cut.put(&1_u64);
    cut.put(&2_u64);
    cut.commit();
    event!(Info, "small", n = 2_u64);
}

fn fork_while_threads_emit() {
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        drop(receiver);
        for thread in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || {
                (0..20_000).for_each(|n| tick(thread, n));
                drop(sender);
            });
        }
        tick(100, 0);
        for child in 0..8 {
            let pid = fork(|| {
                (0..10).for_each(|n| tick(200 + child, n));
                std::thread::spawn(move || (0..5).for_each(|n| tick(300 + child, n)))
                    .join()
                    .unwrap();
                exit_now(0);
            });
            assert!(crate::calls::wait_for(pid), "a child ends well");
            say(&format!("child {pid}"));
        }
        tick(100, 1);
    });
}

/// Forks, and ends: the child lives on until standard input is closed.
fn fork_and_end() {
    tick(0, 0);
    fork(|| {
        say("child");
        let mut rest = Vec::new();
        std::io::stdin().read_to_end(&mut rest).unwrap();
        exit_now(0);
    });
    exit_now(0);
}

fn exec_cat() {
    tick(0, 0);
    panic!("{}", Command::new("cat").exec());
}

fn wait_for_filter() {
    static NOISE: CallSite = CallSite::new(Severity::Debug, "app::db", "noise", "", 0, &[]);
    static OTHER: CallSite = CallSite::new(Severity::Debug, "app::web", "other", "", 0, &[]);
    static NOTICE: CallSite = CallSite::new(Severity::Info, "app::web", "notice", "", 0, &[]);
    assert!(!NOISE.is_enabled() && !OTHER.is_enabled() && NOTICE.is_enabled());
    say("off");
    while !NOISE.is_enabled() {
        std::thread::yield_now();
    }
    assert!(!OTHER.is_enabled() && NOTICE.is_enabled());
    say("debug");
    while NOTICE.is_enabled() {
        std::thread::yield_now();
    }
    assert!(!NOISE.is_enabled());
}
