//! The clock on simulated counters, whose rate changes as NTP, a suspend or a broken counter would
//! have it, and on the running system.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "counters and times of these tests fit"
)]

use std::cell::Cell;
use std::sync::Mutex;

use super::source::{TimeSource, is_counter_used, now};
use super::*;

/// Largest error that the documentation states, in nanoseconds.
const MAX_ERROR: u64 = 1_000;
const SECOND: f64 = 1e9;

/// A system in which time passes only while it is asked for the time, or told so. Its counter has
/// 2.6 GHz.
struct Simulation {
    random: Cell<fastrand::Rng>,
    counter: Cell<u64>,
    /// CLOCK_MONOTONIC in nanoseconds.
    clock: Cell<f64>,
    /// How much faster the clock is than at first, in millionths.
    slew: Cell<f64>,
    /// Nanoseconds that half a call of the clock takes: between half of this and this.
    half_call: u64,
    /// One of this number of calls is interrupted for a long time.
    interruption_rate: u64,
}

impl Simulation {
    fn new(interruption_rate: u64) -> Self {
        Self {
            random: Cell::new(fastrand::Rng::with_seed(7)),
            counter: Cell::new(1 << 40),
            clock: Cell::new(5.0 * SECOND),
            slew: Cell::new(0.0),
            half_call: 25,
            interruption_rate,
        }
    }

    fn random(&self, below: u64) -> u64 {
        let mut random = self.random.replace(fastrand::Rng::with_seed(0));
        let number = random.u64(0..below);
        self.random.set(random);
        number
    }

    fn pass(&self, nanoseconds: u64) {
        let ticks = nanoseconds * 26 / 10;
        self.counter.set(self.counter.get().wrapping_add(ticks));
        let rate = 1.0 + self.slew.get() / 1e6;
        self.clock.set(self.clock.get() + ticks as f64 / 2.6 * rate);
    }

    fn pass_part_of_call(&self, longest: u64) {
        self.pass(self.random(longest));
        if self.random(self.interruption_rate) == 0 {
            self.pass(self.random(1_000_000));
        }
    }

    /// Returns the time of an event, and its error in nanoseconds.
    fn event(&self, clock: &CounterClock<&Self>) -> (u64, u64) {
        let before = self.clock.get() as u64;
        let time = clock.now();
        let after = self.clock.get() as u64;
        let error = before.saturating_sub(time) + time.saturating_sub(after + 1);
        (time, error)
    }
}

impl TimeSource for &Simulation {
    fn monotonic(&self) -> u64 {
        let half_call = || {
            self.pass(self.half_call / 2);
            self.pass_part_of_call(self.half_call / 2);
        };
        half_call();
        let time = self.clock.get();
        half_call();
        time as u64
    }

    fn counter(&self) -> u64 {
        self.pass_part_of_call(10);
        self.counter.get()
    }

    fn counter_in_order(&self) -> u64 {
        self.counter()
    }
}

/// Returns the largest error of the events of an hour in which the clock changes its rate each
/// second to that of `slews` (in millionths), and how many events had their time from the counter.
fn run_an_hour(slew: impl Fn(&Simulation) -> f64) -> (u64, u64) {
    let system = Simulation::new(2_000);
    let clock = CounterClock::new(&system);
    let (mut largest, mut from_counter) = (0, 0);
    for _ in 0..3_600 {
        system.slew.set(slew(&system));
        // A burst, single events, and a pause of a length that differs.
        for pause in [200, 30_000] {
            for _ in 0..300 {
                system.pass(system.random(pause));
                from_counter += u64::from(clock.line.load() != [0; 4]);
                largest = largest.max(system.event(&clock).1);
            }
        }
        system.pass(900_000_000 + system.random(200_000_000));
    }
    (largest, from_counter)
}

#[test]
fn an_hour_of_ntp_slewing_leaves_the_error_below_a_microsecond() {
    let (error, from_counter) = run_an_hour(|system| system.random(1_001) as f64 - 500.0);
    assert!(error <= MAX_ERROR, "{error} ns");
    // Nearly all of 2 million events.
    assert!(from_counter > 1_500_000, "{from_counter}");
}

#[test]
fn an_hour_of_the_fastest_correction_of_chrony_leaves_the_error_below_ten_microseconds() {
    let is_correcting = Cell::new(false);
    let (error, _) = run_an_hour(|system| {
        is_correcting.set(!is_correcting.get());
        let sign = if system.random(2) == 0 { 1.0 } else { -1.0 };
        if is_correcting.get() {
            sign * 83_333.0
        } else {
            0.0
        }
    });
    assert!(error <= 10 * MAX_ERROR, "{error} ns");
}

#[test]
fn a_line_begins_where_the_last_one_has_come() {
    let system = Simulation::new(u64::MAX);
    let clock = CounterClock::new(&system);
    let mut last = Line::default();
    for n in 0..400_000_u64 {
        if n % 9_973 == 0 {
            system.slew.set(system.random(1_001) as f64 - 500.0);
        }
        system.pass(system.random(500));
        let error = system.event(&clock).1;
        assert!(error <= 150, "{error} ns at event {n}");
        let line = clock.calibration.lock().unwrap().line;
        if line != last {
            let latest = last.latest_time_at(line.counter);
            assert!(line.time >= latest, "{last:?} {line:?}");
            last = line;
        }
    }
}

#[test]
fn a_counter_that_went_on_in_a_suspend_or_was_set_is_not_believed_until_it_is_confirmed() {
    let system = Simulation::new(2_000);
    let clock = CounterClock::new(&system);
    for n in 0..1_000_000_u64 {
        if n % 1_000 == 0 {
            // CLOCK_MONOTONIC does not count the ticks that are added here: 10 s, 80 ms, 3 ms, and
            // what is left to the ends of the range.
            let counter = system.counter.get();
            let jumps = [
                26_000_000_000,
                208_000_000,
                7_800_000,
                0_u64.wrapping_sub(counter),
            ];
            let jump = jumps[(n / 1_000 % 4) as usize];
            system.counter.set(counter.wrapping_add(jump));
            system.pass([INTERVAL, 1_000_000_000][(n / 4_000 % 2) as usize]);
        }
        system.pass(system.random(2_000));
        let (_, error) = system.event(&clock);
        assert!(error <= MAX_ERROR, "{error} ns at event {n}");
    }
    assert_ne!(clock.line.load(), [0; 4]);
}

#[test]
fn a_clock_that_takes_long_to_read_is_used_itself() {
    let system = Simulation {
        half_call: 1_000,
        ..Simulation::new(u64::MAX)
    };
    let clock = CounterClock::new(&system);
    for _ in 0..100_000 {
        system.pass(system.random(2_000));
        assert_eq!(system.event(&clock).1, 0);
        assert_eq!(clock.line.load(), [0; 4]);
    }
}

#[test]
fn the_counter_is_used_only_if_the_kernel_says_that_it_uses_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("current_clocksource");
    assert!(!is_counter_used(&file));
    let own = if cfg!(target_arch = "x86_64") {
        "tsc"
    } else {
        "arch_sys_counter"
    };
    for (name, is_used) in [
        (own, true),
        ("kvm-clock", false),
        ("tsc-early", false),
        ("", false),
    ] {
        std::fs::write(&file, format!("{name}\n")).unwrap();
        assert_eq!(is_counter_used(&file), is_used, "{name}");
    }
}

/// Returns the time as a ring reads it on this system.
fn time_of_event(clock: Option<&CounterClock>) -> u64 {
    clock.map_or_else(now, CounterClock::now)
}

#[test]
fn the_time_of_an_event_is_that_of_the_clock_on_this_system() {
    let clock = CounterClock::of_system();
    let mut before = now();
    let end = before + 200 * INTERVAL;
    while before < end {
        let time = time_of_event(clock.as_ref());
        let after = now();
        let possible = before - MAX_ERROR..=after + MAX_ERROR;
        assert!(possible.contains(&time), "{before} {time} {after}");
        before = after;
    }
}

#[test]
fn threads_that_follow_each_other_by_a_lock_have_times_in_order_within_the_error() {
    let clock = CounterClock::of_system();
    let last = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100_000 {
                    let mut last = last.lock().unwrap();
                    let time = time_of_event(clock.as_ref());
                    assert!(time + MAX_ERROR >= *last, "{last} {time}");
                    *last = time;
                }
            });
        }
    });
}
