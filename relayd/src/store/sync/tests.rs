use std::collections::HashSet;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::super::fault::FaultKind;
use super::file::SyncOrder;
use super::position::DurablePosition;
use super::*;

/// An interval at which no test waits for a round.
const NEVER: Duration = Duration::from_secs(3600);

/// A disk whose calls are recorded, can be held up, and can fail.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Inodes, in the order in which they were synced.
    synced: Mutex<Vec<u64>>,
    /// Inodes whose sync fails, once each.
    pub(crate) failing: Mutex<HashSet<u64>>,
    /// Each call says that it has begun, and returns when the test lets it.
    pub(crate) gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

pub(crate) struct Lab {
    thread: SyncThread,
    pub(crate) calls: Arc<Calls>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let calls = Arc::<Calls>::default();
        let call = |calls: Arc<Calls>| -> Box<SyncCall> {
            Box::new(move |file| {
                if let Some((begun, go_on)) = &*calls.gate.lock() {
                    // An error means that the test holds nothing up any more.
                    let _ = begun.send(());
                    let _ = go_on.recv();
                }
                let inode = inode(file);
                calls.synced.lock().push(inode);
                match calls.failing.lock().remove(&inode) {
                    true => Err(Errno::NOSPC.into()),
                    false => Ok(()),
                }
            })
        };
        let disk = Disk {
            sync_data: call(Arc::clone(&calls)),
            sync_directory: call(Arc::clone(&calls)),
        };
        let settings = SyncSettings {
            durability: Durability::Packet,
            interval: NEVER,
        };
        let thread = Syncer::start_on(disk, settings).unwrap();
        Self { thread, calls }
    }

    pub(crate) fn syncer(&self) -> &Arc<Syncer> {
        self.thread.syncer()
    }

    /// Holds up each call until something is sent, or the sender is dropped.
    pub(crate) fn hold_up(&self) -> (Receiver<()>, Sender<()>) {
        let ((begun, is_begun), (go_on, may_go_on)) = (channel(), channel());
        *self.calls.gate.lock() = Some((begun, may_go_on));
        (is_begun, go_on)
    }

    pub(crate) fn sync(&self) {
        if let Some(ticket) = self.syncer().request_round() {
            wait(ticket);
        }
    }

    pub(crate) fn synced(&self) -> Vec<u64> {
        std::mem::take(&mut *self.calls.synced.lock())
    }
}

fn wait(ticket: SyncTicket) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(ticket.wait());
}

pub(crate) fn inode(file: &File) -> u64 {
    file.metadata().unwrap().ino()
}

pub(crate) fn target(order: SyncOrder, status: &Arc<SyncStatus>) -> Arc<SyncTarget> {
    Arc::new(SyncTarget {
        order,
        path: "ust/chan_0".into(),
        status: Arc::clone(status),
    })
}

/// A file that has a name.
pub(crate) fn file() -> (tempfile::NamedTempFile, Arc<SyncedFile>) {
    let named = tempfile::NamedTempFile::new().unwrap();
    let file = SyncedFile::new(named.reopen().unwrap());
    (named, file)
}

#[test]
fn packets_are_synced_before_index_entries_and_directories_last() {
    let (lab, status) = (Lab::new(), Arc::default());
    let directory = tempfile::tempdir().unwrap();
    let [(_a, index), (_b, data)] = [file(), file()];
    let syncer = lab.syncer();
    assert!(syncer.request_round().is_none(), "nothing is dirty");
    syncer.mark_directory(directory.path(), None).unwrap();
    syncer.mark_directory(directory.path(), None).unwrap();
    syncer.mark_file(&index, &target(SyncOrder::Index, &status), 72);
    syncer.mark_file(&data, &target(SyncOrder::Data, &status), 4096);
    syncer.mark_file(&data, &target(SyncOrder::Data, &status), 4096);
    assert_eq!(syncer.tally().unsynced_bytes(), 8264);
    assert_eq!(syncer.dirty_files(), 3);
    lab.sync();
    let opened = File::open(directory.path()).unwrap();
    assert_eq!(lab.synced(), [inode(&data), inode(&index), inode(&opened)]);
    assert_eq!(syncer.tally().unsynced_bytes(), 0);
    assert_eq!((syncer.tally().rounds(), syncer.tally().files()), (1, 3));
    assert!(syncer.request_round().is_none(), "all is synced");
}

#[test]
fn all_that_is_written_while_a_round_runs_shares_the_next() {
    let (lab, status) = (Lab::new(), Arc::default());
    let files = [file(), file(), file()];
    let target = target(SyncOrder::Data, &status);
    let (begun, go_on) = lab.hold_up();
    let syncer = lab.syncer();
    let mark = |at: usize| {
        syncer.mark_file(&files[at].1, &target, 1);
        syncer.request_round().unwrap()
    };
    let first = mark(0);
    begun.recv().unwrap();
    // A session that has written nothing since waits for the round that runs.
    assert_eq!(syncer.request_round().unwrap().round, first.round);
    // The first file has been written to again while it is synced.
    let later: Vec<_> = (0..3).map(mark).collect();
    assert!(later.iter().all(|ticket| ticket.round == first.round + 1));
    assert_eq!(syncer.completed_round() + 1, first.round);
    drop(go_on);
    later.into_iter().for_each(wait);
    assert_eq!(syncer.tally().rounds(), 2);
    let [a, b, c] = [0, 1, 2].map(|at: usize| inode(&files[at].1));
    assert_eq!(lab.synced(), [a, a, b, c]);
}

#[test]
fn a_failed_sync_is_final_and_concerns_its_session_only() {
    let lab = Lab::new();
    let [ours, other] = [(); 2].map(|()| Arc::<SyncStatus>::default());
    let [(_a, bad), (_b, good)] = [file(), file()];
    let mark = || {
        let mark = |file, status| {
            let target = target(SyncOrder::Data, status);
            lab.syncer().mark_file(file, &target, 1);
        };
        mark(&bad, &ours);
        mark(&good, &other);
    };
    lab.calls.failing.lock().insert(inode(&bad));
    mark();
    lab.sync();
    let error = ours.check().unwrap_err();
    assert!(
        error.to_string().contains("cannot sync ust/chan_0"),
        "{error}"
    );
    assert!(
        !error.kind().is_transient(),
        "the bytes cannot be written again, although the disk was only full"
    );
    assert_eq!(lab.synced().len(), 2);
    // A second sync of the file would succeed.
    mark();
    lab.sync();
    assert!(ours.has_failed() && other.check().is_ok());
    assert_eq!(lab.synced(), [inode(&good)]);
    let tally = lab.syncer().tally();
    assert_eq!(
        (tally.failures(), tally.faults().of(FaultKind::Full)),
        (1, 1)
    );
    assert_eq!(tally.unsynced_bytes(), 0);
}

#[test]
fn a_position_is_durable_after_the_round_that_began_after_it_was_written() {
    let (lab, status) = (Lab::new(), Arc::<SyncStatus>::default());
    let (_named, file) = file();
    let (begun, go_on) = lab.hold_up();
    let syncer = lab.syncer();
    let mut position = DurablePosition::default();
    assert_eq!(position.advance(5, syncer, &status), 5, "nothing is dirty");
    let write = || syncer.mark_file(&file, &target(SyncOrder::Data, &status), 1);
    write();
    assert_eq!(position.advance(6, syncer, &status), 5);
    let first = syncer.request_round().unwrap();
    begun.recv().unwrap();
    write();
    assert_eq!(position.advance(7, syncer, &status), 5);
    assert_eq!(position.advance(8, syncer, &status), 5);
    let second = syncer.request_round().unwrap();
    go_on.send(()).unwrap();
    wait(first);
    assert_eq!(position.advance(8, syncer, &status), 6);
    begun.recv().unwrap();
    write();
    lab.calls.failing.lock().insert(inode(&file));
    drop(go_on);
    wait(second);
    assert_eq!(
        position.advance(9, syncer, &status),
        6,
        "the round has failed"
    );
    lab.sync();
    assert_eq!(position.advance(9, syncer, &status), 6);
}

#[test]
fn a_removed_file_is_not_synced() {
    let (lab, status) = (Lab::new(), Arc::default());
    let (named, file) = file();
    lab.syncer()
        .mark_file(&file, &target(SyncOrder::Data, &status), 1);
    drop(named);
    lab.sync();
    assert!(lab.synced().is_empty());
    assert_eq!(lab.syncer().tally().unsynced_bytes(), 0);
}

#[test]
fn a_syncer_that_stops_syncs_what_is_dirty() {
    let (lab, status) = (Lab::new(), Arc::default());
    let (_named, file) = file();
    lab.syncer()
        .mark_file(&file, &target(SyncOrder::Data, &status), 1);
    assert!(lab.thread.stop(Duration::from_secs(60)));
    assert_eq!(
        std::mem::take(&mut *lab.calls.synced.lock()),
        [inode(&file)]
    );
}

#[test]
fn files_are_synced_at_the_interval_though_nobody_waits() {
    let settings = SyncSettings {
        durability: Durability::Interval,
        interval: Duration::from_millis(1),
    };
    let thread = Syncer::start(settings).unwrap().unwrap();
    let (_named, file) = file();
    let syncer = thread.syncer();
    syncer.mark_file(&file, &target(SyncOrder::Data, &Arc::default()), 1);
    while syncer.pending_round().is_some() {
        std::thread::yield_now();
    }
    assert_eq!((syncer.tally().rounds(), syncer.tally().files()), (1, 1));
    assert!(thread.stop(Duration::from_secs(60)));
}
