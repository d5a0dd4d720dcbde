//! The true offset is within the error that is stated, on simulated clocks and links.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    reason = "numbers of a simulation"
)]

use clock_offset::{ClockGraph, ClockOffset, ClockSample, ClockTrack, OffsetTrack};
use fastrand::Rng;

const SEEDS: u64 = 1000;
const SECOND: f64 = 1e9;
const MILLI: f64 = 1e6;
/// One part per million.
const PPM: f64 = 1e-6;

/// The true offset: its rate changes at each of the points, and it jumps there.
struct TrueOffset {
    /// Time, offset after the jump, and rate from then on.
    points: Vec<(f64, f64, f64)>,
}

impl TrueOffset {
    fn at(&self, time: f64) -> f64 {
        let next = self.points.partition_point(|(begin, _, _)| *begin <= time);
        let (begin, offset, rate) = self.points[next.saturating_sub(1)];
        offset + rate * (time - begin)
    }

    fn add(&mut self, time: f64, jump: f64, rate: f64) {
        self.points.push((time, self.at(time) + jump, rate));
    }
}

/// How long questions and answers take.
struct Link {
    /// Shortest times there and back.
    delay: [f64; 2],
    /// Largest further time, which differs from packet to packet.
    jitter: f64,
}

impl Link {
    fn random(rng: &mut Rng) -> Self {
        let max = 10f64.powf(rng.f64() * 3.0) * 5e3;
        Self {
            delay: [max * rng.f64(), max * rng.f64()],
            jitter: max * rng.f64() * 4.0,
        }
    }

    fn take(&self, rng: &mut Rng, direction: usize) -> f64 {
        // Some packets wait in a queue.
        let queue = if rng.u8(..) < 20 { 30.0 * MILLI } else { 0.0 };
        self.delay[direction] + rng.f64() * (self.jitter + queue)
    }
}

/// Measures eight times from `time` on, and returns the best, and when it was all done.
fn measure(
    rng: &mut Rng,
    link: &Link,
    time: f64,
    truth: &TrueOffset,
    realtime: [f64; 2],
) -> ClockSample {
    let noise = |rng: &mut Rng| (rng.f64() - 0.5) * 40e3;
    let mut now = time;
    let rounds = (0..8).map(|_| {
        let asked = now + link.take(rng, 0);
        let answered = asked + link.take(rng, 1);
        let (before, after) = (now.floor(), answered.ceil());
        now = answered;
        let middle = (before + after) / 2.0;
        ClockSample {
            time: middle.floor() as i64,
            ahead: (asked + truth.at(asked)) as i64 - middle.floor() as i64,
            error: ((after - before) / 2.0).ceil() as u64 + 1,
            realtime: (realtime[0] + noise(rng)) as i64,
            other_realtime: (realtime[1] + noise(rng)) as i64,
        }
    });
    rounds.min_by_key(|round| round.error).unwrap()
}

/// Clocks over twenty minutes, and their samples.
fn simulate(rng: &mut Rng) -> (TrueOffset, Vec<ClockSample>, Vec<f64>) {
    let drift = (rng.f64() - 0.5) * 400.0 * PPM;
    // The rate stays within 100 ppm, and within 200 ppm of none.
    let wander = 100.0 * PPM * rng.f64();
    let rate = |rng: &mut Rng| {
        let rate = drift + (rng.f64() - 0.5) * wander;
        rate.clamp(-250.0 * PPM, 250.0 * PPM)
    };
    let first = (rng.f64() - 0.5) * 2e16;
    let mut truth = TrueOffset {
        points: vec![(-1e15, first, rate(rng))],
    };
    truth.points[0].1 = first + truth.points[0].2 * -1e15;
    let link = Link::random(rng);
    let mut realtime = [rng.f64() * 1e18, rng.f64() * 1e18];
    let has_steps = rng.bool();
    let (mut time, mut samples, mut steps) = (0.0, Vec::new(), Vec::new());
    while time < 1200.0 * SECOND {
        samples.push(measure(rng, &link, time, &truth, realtime));
        time += SECOND;
        // Sometimes no relay can be reached for a while.
        let pause = if rng.u8(..) < 10 { 300.0 } else { 28.0 } * SECOND * (0.9 + 0.2 * rng.f64());
        let mut change = time;
        while change < time + pause {
            truth.add(change, 0.0, rate(rng));
            change += SECOND * (1.0 + 40.0 * rng.f64());
        }
        let last = truth.points.last().unwrap().0;
        if has_steps && rng.u8(..) < 60 {
            let at = last + (time + pause - last) * rng.f64();
            let size = 10f64.powf(7.0 + 5.0 * rng.f64());
            steps.push(at);
            match rng.u8(..5) {
                // The host or the relay is suspended.
                0 => {
                    truth.add(at, size, rate(rng));
                    realtime[0] += size;
                }
                1 => {
                    truth.add(at, -size, rate(rng));
                    realtime[1] += size;
                }
                // A virtual machine is stopped, which only the offset shows.
                2 => truth.add(at, 2.0 * SECOND + size, rate(rng)),
                // The time of day is set, which changes no monotonic clock.
                which => realtime[usize::from(which) - 3] -= size,
            }
        }
        time += pause;
    }
    (truth, samples, steps)
}

fn assert_contains(offset: ClockOffset, truth: f64, what: impl FnOnce() -> String) {
    // The simulation counts in floating point, which has 2 ns of 1e16.
    let wrong = (offset.ahead as f64 - truth).abs() - 8.0;
    assert!(
        wrong <= offset.error as f64,
        "{}: {offset:?}, in truth {truth}",
        what()
    );
}

#[test]
fn the_true_offset_is_within_the_stated_error() {
    let mut with_pieces = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let (truth, mut samples, steps) = simulate(&mut rng);
        let last = samples.last().unwrap().time as f64;
        // Samples of two programs come in any order.
        if rng.bool() {
            rng.shuffle(&mut samples);
        }
        let mut track = OffsetTrack::default();
        let (some, others) = samples.split_at(rng.usize(..samples.len()));
        track.add(some.iter().copied());
        track.add(others.iter().copied());
        with_pieces += usize::from(track.pieces() > 1);
        let around = steps.iter().flat_map(|step| [step - 10.0, step + 10.0]);
        let at_samples = samples.iter().map(|sample| sample.time as f64);
        let anywhere = (0..500).map(|_| rng.f64() * (last + 120.0 * SECOND) - 60.0 * SECOND);
        for time in around.chain(at_samples).chain(anywhere.collect::<Vec<_>>()) {
            // Until the first sample, and after the last one, an offset may have jumped unseen.
            if steps.iter().any(|step| (last..time).contains(step)) {
                continue;
            }
            let offset = track.offset_at(time as i64).unwrap();
            assert_contains(offset, truth.at(time.trunc()), || {
                format!("seed {seed} at {time}")
            });
        }
    }
    assert!(with_pieces > 300, "{with_pieces}");
}

#[test]
fn the_error_at_rest_is_half_the_round_trip_and_a_little_more_between_samples() {
    let mut track = OffsetTrack::default();
    for number in 0..20 {
        let time = number * 30_000_000_000;
        track.add([ClockSample {
            time,
            // 200 ppm, and up to 20 us of jitter.
            ahead: 5_000_000 + time / 5000 + number * 7919 % 20_000,
            error: 150_000,
            realtime: number % 3,
            other_realtime: 0,
        }]);
    }
    assert_eq!((track.pieces(), track.samples().count()), (1, 20));
    for second in 0..570 {
        let offset = track.offset_at(second * 1_000_000_000).unwrap();
        let age = (second % 30).min(30 - second % 30) as u64;
        let most = 150_000 + 100_000 * age + 500;
        assert!(offset.error <= most, "{second}: {offset:?}");
        let truth = 5_000_000 + second * 200_000;
        assert!(
            offset.ahead.abs_diff(truth) <= 20_000,
            "{second}: {offset:?}"
        );
    }
}

#[test]
fn a_clock_that_is_corrected_quickly_has_a_larger_error_and_stays_within_it() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let mut truth = TrueOffset {
            points: vec![(0.0, 1e9, 0.0)],
        };
        // NTP corrects a clock by 500 ppm for two to six minutes.
        let begin = (200.0 + 60.0 * rng.f64()) * SECOND;
        truth.add(begin, 0.0, 500.0 * PPM);
        truth.add(begin + (120.0 + 240.0 * rng.f64()) * SECOND, 0.0, 0.0);
        let link = Link {
            delay: [100e3 * rng.f64(), 100e3 * rng.f64()],
            jitter: 50e3,
        };
        let mut track = OffsetTrack::default();
        for number in 0..40 {
            let time = 30.0 * SECOND * f64::from(number);
            track.add([measure(&mut rng, &link, time, &truth, [0.0; 2])]);
        }
        for _ in 0..500 {
            let time = rng.f64() * 1000.0 * SECOND;
            let offset = track.offset_at(time as i64).unwrap();
            assert_contains(offset, truth.at(time.trunc()), || {
                format!("seed {seed} at {time}")
            });
        }
    }
}

#[test]
fn a_sample_over_a_bad_link_does_not_spoil_those_around_it() {
    let mut track = OffsetTrack::default();
    for (second, ahead, error) in [
        (0, 0, 100_000),
        (30, 40_000_000, 50_000_000),
        (60, 0, 100_000),
    ] {
        track.add([ClockSample {
            time: second * 1_000_000_000,
            ahead,
            error,
            realtime: 0,
            other_realtime: 0,
        }]);
    }
    let offset = track.offset_at(30_000_000_000).unwrap();
    assert!(offset.ahead == 0 && offset.error < 1_700_000, "{offset:?}");
}

/// A clock: what it shows at the true time 0, and its rate.
#[derive(Clone, Copy)]
struct Clock {
    start: f64,
    rate: f64,
}

impl Clock {
    fn random(rng: &mut Rng) -> Self {
        Self {
            start: rng.f64() * 1e15,
            rate: 1.0 + (rng.f64() - 0.5) * 200.0 * PPM,
        }
    }

    fn at(self, time: f64) -> f64 {
        self.start + time * self.rate
    }
}

#[test]
fn hosts_that_ask_different_relays_are_related_by_a_host_that_has_asked_both() {
    // Two of five hosts ask the one relay, two the other, and one asks both.
    let asked = [(0, 5), (1, 5), (2, 5), (2, 6), (3, 6), (4, 6)];
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let clocks: Vec<_> = (0..7).map(|_| Clock::random(&mut rng)).collect();
        let mut graph = ClockGraph::default();
        for round in 0..20 {
            for (host, relay) in asked {
                let before = (f64::from(round) * 30.0 + rng.f64()) * SECOND;
                let question = before + rng.f64() * 2.0 * MILLI;
                let after = question + rng.f64() * 2.0 * MILLI;
                let [before, after] = [before, after].map(|time| clocks[host].at(time));
                let middle = f64::midpoint(before, after);
                let sample = ClockSample {
                    time: middle as i64,
                    ahead: (clocks[relay].at(question) - middle) as i64,
                    error: ((after - before) / 2.0) as u64 + 2,
                    realtime: 0,
                    other_realtime: 0,
                };
                graph.add(&host, &relay, &[sample]);
            }
        }
        for _ in 0..50 {
            let time = rng.f64() * 570.0 * SECOND;
            let [from, to] = [rng.usize(..7), rng.usize(..7)];
            let [here, there] = [from, to].map(|node| clocks[node].at(time));
            let offset = graph.offset(&from, here as i64, &to).unwrap();
            assert_contains(offset, there - here, || {
                format!("seed {seed}: {from} to {to}")
            });
            assert!(offset.error < 20_000_000, "{offset:?}");
        }
        assert_eq!(graph.offset(&0, 0, &9), None);
    }
}
