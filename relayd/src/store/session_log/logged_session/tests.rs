//! Which packet lies where, by the marks of a stream.

use super::*;

fn at(file: u64, packets: u64) -> FilePosition {
    FilePosition { file, packets }
}

fn mark(file: u64, packets: u64, seq: u64) -> Mark {
    Mark {
        at: at(file, packets),
        seq: SeqNum(seq),
    }
}

fn stream() -> LoggedStream {
    LoggedStream {
        id: StreamId(1),
        opened: OpenStream::default(),
        marks: VecDeque::from([mark(0, 0, 5)]),
        replacing: None,
        metadata_bytes: 0,
        closed_at: None,
    }
}

#[test]
fn the_number_of_a_packet_follows_from_the_last_mark_before_it() {
    let mut stream = stream();
    // Packets 5 to 8, 12 to 14 and, in the next tracefile, from 15 on.
    stream.add_mark(mark(0, 4, 12), at(0, 2)).unwrap();
    stream.add_mark(mark(1, 0, 15), at(0, 2)).unwrap();
    for (position, seq) in [
        (at(0, 2), 7),
        (at(0, 3), 8),
        (at(0, 4), 12),
        (at(0, 6), 14),
        (at(1, 0), 15),
        (at(1, 9), 24),
    ] {
        assert_eq!(stream.seq_at(position), SeqNum(seq), "{position:?}");
    }
}

#[test]
fn marks_before_the_first_packet_without_an_entry_are_forgotten() {
    let mut stream = stream();
    for file in 1..100 {
        let mark = mark(file, 0, 5 + 10 * file);
        stream.add_mark(mark, at(file, 0)).unwrap();
        assert!(stream.marks.len() <= 2);
    }
    assert_eq!(stream.seq_at(at(99, 3)), SeqNum(998));
    // Lost again at the same position, and rewound to an earlier one.
    stream.add_mark(mark(99, 0, 1000), at(99, 0)).unwrap();
    assert_eq!(stream.seq_at(at(99, 0)), SeqNum(1000));
}

#[test]
fn entries_that_the_disk_has_lost_are_counted_back_from_the_oldest_mark() {
    let mut stream = stream();
    stream.add_mark(mark(0, 50, 60), at(0, 50)).unwrap();
    assert_eq!(stream.seq_at(at(0, 48)), SeqNum(58));
}

#[test]
fn a_tracefile_that_was_to_replace_another_begins_with_the_packet_that_was_logged_until_a_mark_says_so()
 {
    let mut stream = stream();
    stream.replacing = Some(mark(1, 0, 15));
    assert_eq!(stream.seq_at(at(0, 7)), SeqNum(12));
    assert_eq!(stream.seq_at(at(1, 0)), SeqNum(15));
    // Packets were lost before that tracefile was begun.
    stream.add_mark(mark(0, 7, 13), at(0, 7)).unwrap();
    assert_eq!(stream.replacing, Some(mark(1, 0, 15)));
    stream.add_mark(mark(1, 0, 16), at(0, 8)).unwrap();
    assert_eq!(stream.replacing, None);
    assert_eq!(stream.seq_at(at(1, 0)), SeqNum(16));
}
