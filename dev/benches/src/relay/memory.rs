//! Memory that a virtual machine keeps.
//!
//! A virtual machine with free page reporting returns memory that has been free for about two
//! seconds to its host, in blocks of usually 2 MiB and more. The first write to a page that was
//! returned waits for the host: it takes several times as long as all else that a relay does for
//! the page, and the measurement would be one of the host.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// The most memory that is kept: twice what a relay writes before its output is removed.
const LARGEST: u64 = 6 << 30;

/// One page of these bytes stays in use, so that no free block reaches 2 MiB.
const BLOCK: u64 = 256 << 10;

const PAGE: u64 = 4 << 10;

/// Pages that are spread over memory that is otherwise free. The kernel takes small free blocks
/// before large ones, so what is written next comes from between them.
#[derive(Debug)]
pub(super) struct Kept {
    /// The pages are freed when it is closed.
    _pages: File,
}

impl Kept {
    /// Uses half of the available memory once, at most [`LARGEST`], and frees it except for these
    /// pages.
    pub(super) fn new() -> Self {
        let blocks = LARGEST.min(available() / 2) / BLOCK;
        let pages = File::from(memfd_create("kept", MemfdFlags::CLOEXEC).unwrap());
        let content = vec![1; BLOCK as usize];
        for block in 0..blocks {
            // Written, because a page that was only reserved has no memory.
            pages.write_all_at(&content, block * BLOCK).unwrap();
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for block in 0..blocks {
            fallocate(&pages, flags, block * BLOCK + PAGE, BLOCK - PAGE).unwrap();
        }
        Self { _pages: pages }
    }
}

/// Bytes of memory that programs can use.
fn available() -> u64 {
    let information = fs::read_to_string("/proc/meminfo").unwrap();
    let line = information
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.unwrap().parse::<u64>().unwrap() << 10
}
