//! The least that a relay does for a packet: it receives it, and writes it to a file. Beside it,
//! both relays under the same load.

use std::fs::File;
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use relay_proto::DataHeader;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tests::lab::Lab;
use wire::Field;

use super::load::{BATCH_BYTES, Load, SendMode, write_all_vectored};
use super::{MIB, Which, median};

const ROUNDS: usize = 5;
const PRODUCERS: [usize; 2] = [1, 8];
/// Bytes of a packet, and the packets of one measurement.
const PACKETS: [(usize, usize); 3] = [(64 << 10, 8 << 10), (256 << 10, 2400), (MIB, 800)];

/// Bytes that are received at once, as by `relayd`.
const READ_BYTES: usize = MIB;

/// Prints the table of producers and packet sizes.
pub(super) fn run() {
    println!(
        "# CPU us/packet, pipelined; in turns, medians of {ROUNDS} rounds; ratios to receiving and writing alone"
    );
    println!(
        "{:<24} {:>18} {:>16} {:>16}",
        "producers x packet", "receive and write", "lttng-relayd", "relayd"
    );
    for producers in PRODUCERS {
        for (packet, packets) in PACKETS {
            let load = Load {
                what: "",
                aims: ["", ""],
                producers,
                streams: 1,
                packet,
                bytes: packet * packets,
                send_mode: SendMode::Pipelined,
            };
            print_row(&load, packets);
        }
    }
}

fn print_row(load: &Load, packets: usize) {
    let mut figures = [(); 3].map(|()| Vec::new());
    for _ in 0..ROUNDS {
        let relay = |which: Which| load.run(&mut which.start(&Lab::new())).relay_cpu;
        let taken = [
            receive_and_write(load),
            relay(Which::Reference),
            relay(Which::Ours),
        ];
        for (figures, taken) in figures.iter_mut().zip(taken) {
            figures.push(taken.as_secs_f64() * 1e6 / packets as f64);
        }
    }
    let [bound, reference, ours] = figures.map(|mut figures| median(&mut figures));
    let relative = |value: f64| format!("{value:.0} ({:.2}x)", value / bound);
    println!(
        "{:<24} {bound:>18.0} {:>16} {:>16}",
        format!("{} x {} KiB", load.producers, load.packet >> 10),
        relative(reference),
        relative(ours),
    );
}

/// Receives the packets of a load and writes them to a file for each producer, by as many threads
/// as `relayd` has. Returns the processor time of these threads.
fn receive_and_write(load: &Load) -> Duration {
    let lab = Lab::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        for _ in 0..load.producers {
            scope.spawn(|| send(address, load));
        }
        // As many as `relayd` has, so that both use the caches alike.
        let threads = thread::available_parallelism().map_or(2, |count| count.get().max(2));
        let mut sockets: Vec<_> = (0..threads).map(|_| Vec::new()).collect();
        for number in 0..load.producers {
            sockets[number % threads].push(listener.accept().unwrap().0);
        }
        let path = lab.path();
        let running: Vec<_> = sockets
            .into_iter()
            .enumerate()
            .map(|(number, sockets)| scope.spawn(move || write_all(sockets, path, number)))
            .collect();
        let taken = running.into_iter().map(|thread| thread.join().unwrap());
        taken.sum()
    })
}

fn send(address: SocketAddr, load: &Load) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let (head, payload) = ([0; DataHeader::SIZE], vec![0x5a; load.packet]);
    let batch = (BATCH_BYTES / load.packet).max(1);
    let packets = load.bytes / load.packet / load.producers;
    for first in (0..packets).step_by(batch) {
        let count = batch.min(packets - first);
        let packet = [IoSlice::new(&head), IoSlice::new(&payload)];
        let mut slices: Vec<_> = (0..count).flat_map(|_| packet).collect();
        write_all_vectored(&mut socket, &mut slices);
    }
}

/// Receives from sockets until their peers close them, and writes to a file for each. Returns the
/// processor time of this thread.
fn write_all(sockets: Vec<TcpStream>, directory: &Path, thread: usize) -> Duration {
    let clock = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let create = |number| File::create(directory.join(format!("{thread}-{number}"))).unwrap();
    let mut files: Vec<_> = (0..sockets.len())
        .map(|number| (create(number), 0))
        .collect();
    let mut buffer = vec![0; READ_BYTES];
    let begun = clock();
    let mut open: Vec<_> = sockets.into_iter().zip(&mut files).collect();
    while !open.is_empty() {
        let mut polled: Vec<_> = open
            .iter()
            .map(|(socket, _)| PollFd::new(socket, PollFlags::IN))
            .collect();
        poll(&mut polled, None).unwrap();
        let ready: Vec<_> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        open.retain_mut(|(socket, (file, offset))| {
            // One answer for each socket: `retain_mut` goes through them in the order in which they
            // were polled.
            if !ready.next().unwrap() {
                return true;
            }
            match recv(&*socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((read, _)) => {
                    file.write_all_at(&buffer[..read], *offset).unwrap();
                    *offset += read as u64;
                }
                // A socket may be ready without having data.
                Err(error) => assert_eq!(error, Errno::AGAIN),
            }
            true
        });
    }
    clock() - begun
}
