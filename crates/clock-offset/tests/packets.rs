//! Offsets from packets: the true one is within the stated error on simulated links, and the bounds
//! are those that follow from all pairs of packets.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "numbers of a simulation"
)]

use clock_offset::{
    ClockGraph, ClockOffset, ClockTrack, MAX_DRIFT, PacketTimes, PacketTrack, PacketTrackError,
};
use fastrand::Rng;

const SEEDS: u64 = 1000;
const SECOND: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
/// What readings of two clocks in whole nanoseconds add to a bound.
const READING_ERROR: i128 = 2;

/// A clock: what it shows at the true time 0, in picoseconds, and parts per billion by which it is
/// fast.
#[derive(Debug, Clone, Copy)]
struct Clock {
    start: i128,
    drift: i128,
}

impl Clock {
    /// Two of them drift apart by 400 ppm at most.
    fn random(rng: &mut Rng) -> Self {
        Self {
            start: rng.i128(0..1_000_000 * SECOND * 1000),
            drift: rng.i128(-200_000..=200_000),
        }
    }

    /// Returns the exact time at a true time, both in picoseconds.
    fn at(self, time: i128) -> i128 {
        self.start + time + (time * self.drift).div_euclid(SECOND)
    }

    /// Returns the time that is read, in nanoseconds.
    fn read(self, time: i128) -> i64 {
        self.at(time).div_euclid(1000) as i64
    }
}

/// Packets of a minute between two clocks, in both directions. Each direction has its own delay.
fn exchange(rng: &mut Rng, [one, other]: [Clock; 2]) -> [Vec<PacketTimes>; 2] {
    let max = [50_000, MILLI, 100 * MILLI][rng.usize(..3)] * 1000;
    let packets = |rng: &mut Rng, from: Clock, to: Clock| {
        let (delay, jitter) = (rng.i128(1..max), rng.i128(1..4 * max));
        let packet = |rng: &mut Rng| {
            let sent = rng.i128(0..60 * SECOND * 1000);
            // Some packets wait in a queue.
            let queue = if rng.u8(..) < 20 {
                30 * MILLI * 1000
            } else {
                1
            };
            let received = sent + delay + rng.i128(0..jitter + queue);
            PacketTimes {
                sent: from.read(sent),
                received: to.read(received),
            }
        };
        (0..rng.usize(1..200)).map(|_| packet(rng)).collect()
    };
    [packets(rng, one, other), packets(rng, other, one)]
}

/// Checks the offset of `there` from `here` at a true time.
fn assert_contains([here, there]: [Clock; 2], time: i128, offset: ClockOffset, what: &str) {
    let truth = there.at(time) - here.at(time);
    let wrong = (i128::from(offset.ahead) * 1000 - truth).abs();
    // The time of a clock is read in nanoseconds, in which it drifts by less than a picosecond.
    assert!(
        wrong <= i128::from(offset.error) * 1000 + 1,
        "{what} at {time}: {offset:?}, in truth {truth} ps"
    );
}

#[test]
fn the_true_offset_is_within_the_stated_error() {
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let clocks = [Clock::random(&mut rng), Clock::random(&mut rng)];
        let [there, back] = exchange(&mut rng, clocks);
        let track = PacketTrack::new(&there, &back).unwrap();
        let reversed = PacketTrack::new(&back, &there).unwrap();
        assert_eq!(track.packets(), there.len() + back.len());
        let what = format!("seed {seed}");
        for _ in 0..200 {
            let time = rng.i128(-60 * SECOND * 1000..120 * SECOND * 1000);
            let offset = track.offset_at(clocks[0].read(time)).unwrap();
            assert_contains(clocks, time, offset, &what);
            let offset = reversed.offset_at(clocks[1].read(time)).unwrap();
            assert_contains([clocks[1], clocks[0]], time, offset, &what);
        }
    }
}

#[test]
fn hosts_between_others_relate_them_and_the_errors_add_up() {
    let links = [(0, 1), (1, 2), (2, 3)];
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let clocks: Vec<_> = (0..4).map(|_| Clock::random(&mut rng)).collect();
        let mut graph = ClockGraph::default();
        for (one, other) in links {
            let [there, back] = exchange(&mut rng, [clocks[one], clocks[other]]);
            let tracks = [(&there, &back), (&back, &there)]
                .map(|(there, back)| PacketTrack::new(there, back).unwrap());
            graph.insert(&one, &other, tracks);
        }
        for _ in 0..50 {
            let time = rng.i128(0..60 * SECOND * 1000);
            let [from, to] = [rng.usize(..4), rng.usize(..4)];
            let [here, there] = [clocks[from], clocks[to]];
            let offset = graph.offset(&from, here.read(time), &to).unwrap();
            assert_contains([here, there], time, offset, &format!("seed {seed}"));
        }
        assert_eq!(graph.offset(&0, 0, &9), None);
    }
}

/// A bound of the offset: time and offset.
type Bound = (i128, i128);

fn bounds(packets: [&[PacketTimes]; 2]) -> [Vec<Bound>; 2] {
    let [there, back] = packets;
    let upper = there.iter().map(|packet| {
        let (sent, received) = (i128::from(packet.sent), i128::from(packet.received));
        (sent, received - sent + READING_ERROR)
    });
    let lower = back.iter().map(|packet| {
        let (sent, received) = (i128::from(packet.sent), i128::from(packet.received));
        (received, sent - received - READING_ERROR)
    });
    [upper.collect(), lower.collect()]
}

/// Returns the lowest and the highest offset of all lines that agree with packets, by looking at
/// all pairs of bounds. `None` if there is no such line.
fn bounds_by_all_pairs([upper, lower]: &[Vec<Bound>; 2], time: i128) -> Option<(i128, i128)> {
    // Fractions, with positive denominators.
    let less = |one: Bound, other: Bound| one.0 * other.1 < other.0 * one.1;
    let mut rates = [
        (-i128::from(MAX_DRIFT), SECOND),
        (i128::from(MAX_DRIFT), SECOND),
    ];
    for (above, high) in upper {
        for (below, low) in lower {
            match (above - below, high - low) {
                (0, ..0) => return None,
                (0, _) => {}
                (run @ 1.., rise) if less((rise, run), rates[1]) => rates[1] = (rise, run),
                (run @ ..0, rise) if less(rates[0], (-rise, -run)) => rates[0] = (-rise, -run),
                _ => {}
            }
        }
    }
    if less(rates[1], rates[0]) {
        return None;
    }
    let negated = |bounds: &[Bound]| -> Vec<Bound> {
        bounds
            .iter()
            .map(|(time, offset)| (*time, -offset))
            .collect()
    };
    let [lowest, highest] = rates;
    let falling = [(-highest.0, highest.1), (-lowest.0, lowest.1)];
    Some((
        -highest_by_all_pairs(&negated(lower), falling, time),
        highest_by_all_pairs(upper, rates, time),
    ))
}

/// Returns the highest offset of lines below all bounds with rates in a range, rounded up: no
/// higher than the line through two of the bounds, nor than one of the steepest through any.
fn highest_by_all_pairs(upper: &[Bound], rates: [(i128, i128); 2], time: i128) -> i128 {
    let on_line = |(begin, offset): Bound, (rise, run): (i128, i128)| {
        offset - (-(rise * (time - begin))).div_euclid(run)
    };
    let alone = upper.iter().map(|bound| {
        let rate = if bound.0 > time { rates[0] } else { rates[1] };
        on_line(*bound, rate)
    });
    let pairs = upper.iter().flat_map(|before| {
        let after = upper
            .iter()
            .filter(move |after| before.0 < time && after.0 > time);
        after.map(move |after| on_line(*before, (after.1 - before.1, after.0 - before.0)))
    });
    alone.chain(pairs).min().unwrap()
}

#[test]
fn bounds_are_those_of_all_pairs_of_packets() {
    let (mut with_line, mut without) = (0, 0);
    for seed in 0..3 * SEEDS {
        let mut rng = Rng::with_seed(seed);
        // Few different times, so that bounds are of the same time and on one line.
        let times = [10, 1000, 1_000_000, 1_000_000_000_000][rng.usize(..4)];
        let spread = [3, 50, 5_000, 500_000_000][rng.usize(..4)];
        let middle = rng.i64(-1_000_000..1_000_000);
        let rate = rng.i64(-600..600);
        let packets = |rng: &mut Rng, sign: i64| -> Vec<PacketTimes> {
            let packet = |rng: &mut Rng| {
                let here = rng.i64(0..times);
                // Some bounds contradict the others.
                let away = if rng.u16(..) < 500 {
                    -spread
                } else {
                    rng.i64(0..spread)
                };
                let there = here + middle + here / 1_000_000 * rate + sign * away;
                let (sent, received) = if sign > 0 {
                    (here, there)
                } else {
                    (there, here)
                };
                PacketTimes { sent, received }
            };
            (0..rng.usize(1..40)).map(|_| packet(rng)).collect()
        };
        let (there, back) = (packets(&mut rng, 1), packets(&mut rng, -1));
        let bounds = bounds([&there, &back]);
        let track = PacketTrack::new(&there, &back);
        let around = (0..20).map(|_| rng.i64(-times..2 * times));
        let at_packets = there.iter().take(10).map(|packet| packet.sent);
        for time in around.chain(at_packets).collect::<Vec<_>>() {
            let expected = bounds_by_all_pairs(&bounds, time.into());
            let Ok(track) = &track else {
                assert_eq!(expected, None, "seed {seed} at {time}");
                continue;
            };
            let ClockOffset { ahead, error } = track.offset_at(time).unwrap();
            let (low, high) = expected.unwrap();
            assert_eq!(i128::from(ahead), (low + high) / 2, "seed {seed} at {time}");
            assert_eq!(
                i128::from(error),
                (high - low) / 2 + 1,
                "seed {seed} at {time}"
            );
        }
        match track {
            Ok(_) => with_line += 1,
            Err(error) => {
                assert_eq!(error, PacketTrackError::NoConstantDrift);
                without += 1;
            }
        }
    }
    assert!(with_line > 750 && without > 300, "{with_line} {without}");
}

#[test]
fn many_bends_are_left_out_and_the_bounds_stay_bounds() {
    // All bounds are on parabolas, so that each is a corner of its hull.
    let packet = |number: i64, sign: i64| {
        let here = number * 1_000_000;
        let away = sign * (1000 + number * number / 100);
        (here, here + away)
    };
    let there: Vec<_> = (-5000..5000)
        .map(|number| packet(number, 1))
        .map(|(sent, received)| PacketTimes { sent, received })
        .collect();
    let back: Vec<_> = (-5000..5000)
        .map(|number| packet(number, -1))
        .map(|(received, sent)| PacketTimes { sent, received })
        .collect();
    let track = PacketTrack::new(&there, &back).unwrap();
    assert!(track.bends().count() < 80, "{}", track.bends().count());
    for time in (-5000..5000).map(|number| number * 200_007) {
        let offset = track.offset_at(time).unwrap();
        let number = (i128::from(time) / 1_000_000).abs();
        // The steepest line between the parabolas touches both 316 milliseconds from their middle.
        let exact = match number {
            ..316 => 1000 + number * number / 100,
            _ => number * 632 / 100,
        };
        assert!(offset.ahead.abs() < 10, "{offset:?}");
        let allowed = exact - 2..=exact + exact / 10;
        assert!(
            allowed.contains(&offset.error.into()),
            "{time}: {offset:?}, {exact}"
        );
    }
}

#[test]
fn packets_that_tell_no_offset_are_refused_with_the_reason() {
    let packet = |sent, received| PacketTimes { sent, received };
    let there = [
        packet(1000, 5000),
        packet(SECOND as i64, SECOND as i64 + 4000),
    ];
    let back = [
        packet(5000, 1500),
        packet(SECOND as i64 + 4000, SECOND as i64 + 500),
    ];
    let reason =
        |there: &[PacketTimes], back: &[PacketTimes]| PacketTrack::new(there, back).unwrap_err();
    assert_eq!(reason(&there, &[]), PacketTrackError::OneDirection);
    assert_eq!(reason(&[], &back), PacketTrackError::OneDirection);
    let track = PacketTrack::new(&there, &back).unwrap();
    assert_eq!(track.offset_at(1500).unwrap().ahead, 3750);
    assert_eq!((track.packets(), track.last()), (4, SECOND as i64 + 500));
    // The other clock is stopped for a millisecond.
    let later = [packet(2 * SECOND as i64, 2 * SECOND as i64 - 1_000_000)];
    let stepped = [&there[..], &later].concat();
    assert_eq!(reason(&stepped, &back), PacketTrackError::NoConstantDrift);
    // Times that no clock has are left out.
    let odd = [
        &there[..],
        &[packet(i64::MIN, i64::MAX), packet(i64::MAX, 0)],
    ]
    .concat();
    assert_eq!(PacketTrack::new(&odd, &back).unwrap().packets(), 4);
    assert!(track.offset_at(i64::MAX).is_some() && track.offset_at(i64::MIN).is_some());
}
