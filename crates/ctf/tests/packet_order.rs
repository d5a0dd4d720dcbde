//! The order of a stream's packets: that of its file, whatever their times are; and of several
//! files.
#![cfg(test)]

use std::fs;
use std::path::Path;

use ctf::Trace;

/// A trace without a class for each packet: a packet has its size in bits, its begin and end, a
/// number of `bits` bits, and one event.
fn write_packets(directory: &Path, bits: usize, files: &[(&str, &[(u64, u64)])]) {
    let metadata = format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; }} := u8;
        typealias integer {{ size = 64; align = 8; }} := u64;
        trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ u8 stream_instance_id; }}; }};
        clock {{ name = c; freq = 1000000000; }};
        typealias integer {{ size = 64; align = 8; map = clock.c.value; }} := time;
        stream {{
            packet.context := struct {{
                u64 packet_size; time timestamp_begin; time timestamp_end;
                integer {{ size = {bits}; align = 8; }} packet_seq_num;
            }};
            event.header := struct {{ time timestamp; }};
        }};
        event {{ name = e; fields := struct {{ u64 number; }}; }};"
    );
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("metadata"), metadata).unwrap();
    let mut number = 0_u64;
    for (name, packets) in files {
        let mut bytes = Vec::new();
        for (begin, sequence) in *packets {
            let size = 8 * (1 + 3 * 8 + 2 * 8 + bits as u64 / 8);
            bytes.push(7);
            for word in [size, *begin, begin + 5] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(&sequence.to_le_bytes()[..bits / 8]);
            for word in [*begin, number] {
                bytes.extend(word.to_le_bytes());
            }
            number += 1;
        }
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// The numbers of the events of a trace, and the packets that are reported as lost.
fn numbers_and_losses(directory: &Path) -> (Vec<u64>, u64) {
    let mut events = Trace::open(directory).unwrap().events();
    let number = |event: &ctf::Event| event.field("number").unwrap().as_u64().unwrap();
    let numbers = events.by_ref().map(|event| number(&event.unwrap()));
    (numbers.collect(), events.losses().packets)
}

#[test]
fn packets_of_a_file_keep_their_order_where_their_times_go_back() {
    let lab = tempfile::tempdir().unwrap();
    const LARGEST: u64 = u32::MAX as u64;
    for (case, sequence) in [
        ("counted", [0, 1, 2, 3]),
        ("wrapped", [LARGEST - 1, LARGEST, 0, 1]),
        ("reset", [7, 8, 0, 1]),
        ("not counted", [0; 4]),
    ] {
        let directory = lab.path().join(case);
        let packets = [LARGEST - 500, LARGEST - 100, 20, 70];
        let packets: Vec<_> = packets.into_iter().zip(sequence).collect();
        write_packets(&directory, 32, &[("s", &packets)]);
        let read = numbers_and_losses(&directory);
        assert_eq!(read, (vec![0, 1, 2, 3], 0), "{case}");
        let trace = Trace::open(&directory).unwrap();
        let span = trace.directories()[0].streams[0].span();
        assert_eq!(span, Some((20, LARGEST - 95)), "{case}");
    }
}

#[test]
fn packets_of_several_files_are_in_order_of_their_numbers_or_times() {
    let lab = tempfile::tempdir().unwrap();
    type Files<'a> = &'a [(&'a str, &'a [(u64, u64)])];
    let cases: [(&str, usize, Files<'_>, &[u64]); 6] = [
        // The clock wraps in the first file.
        (
            "wrapped clock",
            32,
            &[("a", &[(900, 0), (10, 1)]), ("b", &[(20, 2), (30, 3)])],
            &[0, 1, 2, 3],
        ),
        // The clock wraps between the files.
        (
            "wrapped between",
            32,
            &[("a", &[(20, 2), (30, 3)]), ("b", &[(800, 0), (900, 1)])],
            &[2, 3, 0, 1],
        ),
        (
            "reset numbers",
            32,
            &[("a", &[(50, 0), (60, 1)]), ("b", &[(10, 0), (20, 1)])],
            &[2, 3, 0, 1],
        ),
        (
            "wrapped numbers",
            8,
            &[("a", &[(50, 0), (60, 1)]), ("b", &[(10, 254), (20, 255)])],
            &[2, 3, 0, 1],
        ),
        // Without numbers a file whose clock goes back is passed as a whole.
        (
            "no numbers",
            8,
            &[
                ("a", &[(10, 0), (900, 0), (15, 0)]),
                ("b", &[(20, 0), (950, 0)]),
            ],
            &[0, 3, 1, 2, 4],
        ),
        (
            "copies",
            32,
            &[
                ("a", &[(10, 0), (900, 1), (15, 2)]),
                ("b", &[(900, 1), (15, 2), (30, 3)]),
            ],
            &[0, 1, 2, 5],
        ),
    ];
    for (case, bits, files, want) in cases {
        let directory = lab.path().join(case);
        write_packets(&directory, bits, files);
        assert_eq!(numbers_and_losses(&directory).0, want, "{case}");
    }
}
