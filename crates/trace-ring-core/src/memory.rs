//! Memory that this process shares with others, or with itself across a fork. Only this module, the
//! clock's source and the functions for C have `unsafe` code.
//!
//! Everything here is sound to use from safe code. References into a mapping are to atomics, or
//! live no longer than an exclusive borrow of the mapping's owner. Other processes see the files
//! through `pread`; one that maps or truncates them must have this process's user id, and could do
//! worse by other means.
#![allow(
    unsafe_code,
    reason = "shared mappings are raw memory; every block says why it is sound"
)]

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use libc::pthread_atfork;
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::thread::futex;

use crate::format::{
    CONTROL_GENERATION_OFFSET, CONTROL_MAX_SEVERITY_OFFSET, CONTROL_SIZE, RING_COMMIT_OFFSET,
    RING_CONSUMED_OFFSET, RING_LOST_OFFSET, RING_PAGE_SIZE, RING_RELEASED_OFFSET,
    RING_RESERVE_OFFSET, RING_STATE_OFFSET, RING_TABLE_ENTRY_SIZE, RING_TABLE_OFFSET, RingHeader,
    SubBufferEntry,
};
use crate::protocol::{RingMemory, Word};

/// A shared, writable mapping of the first bytes of a file; unmapped when dropped. A forked child
/// does not have it.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping belongs to no thread, and `&Mapping` gives access to atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `size` bytes of `file`, which must have them allocated, with page tables filled.
    pub(crate) fn new(file: impl AsFd, size: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the address, so no existing mapping changes.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::Errno::NOMEM)?;
        let mapping = Self { start, size };
        // SAFETY: the range is the mapping made above. Only a forked child notices, and it uses no
        // mapping of its parent (`process` looks at the generation first).
        unsafe { madvise(start.as_ptr().cast(), size, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// Gives the mapping to forked children, too.
    pub(crate) fn share_with_children(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        unsafe { madvise(self.start.as_ptr().cast(), self.size, Advice::LinuxDoFork) }
    }

    /// Bytes of the mapping.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the eight bytes at `offset`, a multiple of 8 within the mapping.
    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.size,
            "offset inside the mapping"
        );
        // SAFETY: in bounds and aligned, as just checked (mappings begin at a page); atomics may be
        // shared, and the bytes are never accessed in another way while the borrow of the mapping
        // lasts.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// Copies bytes to `offset`. Those that do not fit are left out.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if offset
            .checked_add(bytes.len())
            .is_some_and(|end| end <= self.size)
        {
            // SAFETY: in bounds, as just checked; `&mut self` excludes every other access of this
            // process.
            unsafe {
                ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.start.as_ptr().add(offset),
                    bytes.len(),
                );
            }
        }
    }

    /// Returns a copy of the mapping, which another process may be changing.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let words = (0..self.size / 8).map(|index| self.u64_at(index * 8).load(Ordering::Relaxed));
        words
            .flat_map(|word| u64::from_le(word).to_le_bytes())
            .collect()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no reference into it outlives `self`. A forked child never
        // drops a mapping of its parent: it forgets it (`process`), because the range may hold
        // something else by then.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// The first 1024 bytes of a ring file as the producer sees them.
#[repr(C)]
struct ControlWords {
    header: [u64; 64],
    reserve: LittleEndian,
    reserve_line: [u64; 7],
    commit: LittleEndian,
    commit_line: [u64; 7],
    consumed: LittleEndian,
    released: AtomicU32,
    consumed_line: [u32; 13],
    lost: [LittleEndian; 3],
    lost_line: [u64; 5],
    state: AtomicU32,
    state_line: [u32; 15],
}

const _: () = {
    assert!(std::mem::offset_of!(ControlWords, reserve) == RING_RESERVE_OFFSET);
    assert!(std::mem::offset_of!(ControlWords, commit) == RING_COMMIT_OFFSET);
    assert!(std::mem::offset_of!(ControlWords, consumed) == RING_CONSUMED_OFFSET);
    assert!(std::mem::offset_of!(ControlWords, released) == RING_RELEASED_OFFSET);
    assert!(std::mem::offset_of!(ControlWords, lost) == RING_LOST_OFFSET);
    assert!(std::mem::offset_of!(ControlWords, state) == RING_STATE_OFFSET);
    assert!(size_of::<ControlWords>() <= RING_TABLE_OFFSET);
};

/// An atomic number that is little-endian in memory.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct LittleEndian(AtomicU64);

impl LittleEndian {
    /// Adds one; for counters that several contexts write.
    pub(crate) fn increment(&self) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| {
                Some(u64::from_le(value).wrapping_add(1).to_le())
            });
    }
}

impl Word for LittleEndian {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        u64::from_le(self.0.load(order))
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value.to_le(), order);
    }
}

/// The mapping of a ring file. One [`RingMapping`] per ring writes data; [`RingCounters`] share the
/// mapping.
#[derive(Debug)]
pub(crate) struct RingMapping {
    mapping: Arc<Mapping>,
    /// First byte of the data. Only this value writes there and in the table.
    data: NonNull<u8>,
    data_size: usize,
}

// SAFETY: as for `Mapping`; the data is only written through `&mut RingMapping`.
unsafe impl Send for RingMapping {}
// SAFETY: as above.
unsafe impl Sync for RingMapping {}

/// The lost counters of a ring, for a context that cannot reach its writer.
#[derive(Debug, Clone)]
pub(crate) struct RingCounters {
    mapping: Arc<Mapping>,
}

impl RingMapping {
    /// Maps a new ring file of the size that `header` says, and writes the header.
    pub(crate) fn new(file: impl AsFd, header: &RingHeader) -> io::Result<Self> {
        let to_usize = |size: u64| usize::try_from(size).map_err(|_| io::Errno::NOMEM);
        let data_size = to_usize(header.data_size())?;
        let data_offset = to_usize(header.data_offset())?;
        debug_assert!(data_offset >= RING_PAGE_SIZE);
        let mut mapping = Mapping::new(file, to_usize(header.file_size())?)?;
        mapping.write(0, &header.encode());
        // SAFETY: the file size is the data offset plus the data size.
        let data = unsafe { mapping.start.add(data_offset) };
        Ok(Self {
            mapping: Arc::new(mapping),
            data,
            data_size,
        })
    }

    pub(crate) fn counters(&self) -> RingCounters {
        RingCounters {
            mapping: Arc::clone(&self.mapping),
        }
    }

    pub(crate) fn set_state(&self, state: u32) {
        self.control().state.store(state.to_le(), Ordering::Release);
    }

    /// Whether the drainer has taken everything, the counters included.
    pub(crate) fn is_released(&self) -> bool {
        self.control().released.load(Ordering::Acquire) != 0
    }

    #[inline]
    fn control(&self) -> &ControlWords {
        control_words(&self.mapping)
    }
}

#[inline]
fn control_words(mapping: &Mapping) -> &ControlWords {
    // SAFETY: every ring mapping is larger than the control words and begins at a page. The fields
    // that are no atomics are private to this module, and nothing reads or writes them through this
    // reference.
    unsafe { mapping.start.cast().as_ref() }
}

impl RingCounters {
    pub(crate) fn count_nested(&self) {
        let [_, _, nested] = &control_words(&self.mapping).lost;
        nested.increment();
    }
}

impl RingMemory for RingMapping {
    type Word = LittleEndian;

    #[inline]
    fn reserve(&self) -> &LittleEndian {
        &self.control().reserve
    }

    #[inline]
    fn commit(&self) -> &LittleEndian {
        &self.control().commit
    }

    #[inline]
    fn consumed(&self) -> &LittleEndian {
        &self.control().consumed
    }

    fn lost_full(&self) -> &LittleEndian {
        let [full, _, _] = &self.control().lost;
        full
    }

    fn lost_big(&self) -> &LittleEndian {
        let [_, big, _] = &self.control().lost;
        big
    }

    fn lost_nested(&self) -> &LittleEndian {
        let [_, _, nested] = &self.control().lost;
        nested
    }

    fn fence(&self, order: Ordering) {
        fence(order);
    }

    #[inline]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if offset
            .checked_add(bytes.len())
            .is_some_and(|end| end <= self.data_size)
        {
            // SAFETY: in bounds of the data, as just checked. `&mut self` excludes other writers,
            // and nothing in this process reads the data.
            unsafe {
                ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.data.as_ptr().add(offset),
                    bytes.len(),
                );
            }
        }
    }

    fn write_entry(&mut self, index: usize, entry: &SubBufferEntry) {
        let offset = RING_TABLE_OFFSET + index * RING_TABLE_ENTRY_SIZE;
        let bytes = entry.encode();
        if offset + bytes.len() <= self.mapping.size - self.data_size {
            // SAFETY: the table lies between the control words and the data, as just checked.
            // `&mut self` excludes other writers, and nothing in this process reads the table.
            unsafe {
                let target = self.mapping.start.as_ptr().add(offset);
                ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            }
        }
    }
}

/// A reference to a value that lives for ever, which can be replaced; readers load it without a
/// lock.
#[derive(Debug)]
pub(crate) struct Published<T: 'static> {
    value: AtomicPtr<T>,
    marker: PhantomData<&'static T>,
}

impl<T: Sync> Published<T> {
    pub(crate) const fn new() -> Self {
        Self {
            value: AtomicPtr::new(ptr::null_mut()),
            marker: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or from a `&'static T` in `set`; acquire makes what was written before
        // `set` visible.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set(&self, value: &'static T) {
        self.value
            .store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }

    /// Sets the value unless there is one; returns the one that is there now.
    pub(crate) fn get_or_set(&self, value: &'static T) -> &'static T {
        let new = ptr::from_ref(value).cast_mut();
        match self
            .value
            .compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => value,
            Err(_) => self.get().unwrap_or(value),
        }
    }
}

/// What a call site looks at first: the beginning of the filter in `control`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FilterWords {
    generation: AtomicU32,
    max_severity: AtomicU32,
}

const _: () = {
    let between = CONTROL_MAX_SEVERITY_OFFSET - CONTROL_GENERATION_OFFSET;
    assert!(std::mem::offset_of!(FilterWords, max_severity) == between);
};

impl FilterWords {
    /// Words of no file, in their form on disk.
    pub(crate) const fn new(generation: u32, max_severity: u32) -> Self {
        Self {
            generation: AtomicU32::new(generation.to_le()),
            max_severity: AtomicU32::new(max_severity.to_le()),
        }
    }

    /// Returns the words of a mapping of `control`.
    pub(crate) fn of(control: &Mapping) -> &Self {
        assert!(CONTROL_GENERATION_OFFSET + size_of::<Self>() <= control.size);
        // SAFETY: in bounds, as just checked, and aligned to four bytes (mappings begin at a page);
        // the fields are atomics.
        unsafe { control.start.add(CONTROL_GENERATION_OFFSET).cast().as_ref() }
    }

    /// Returns the generation of the filter.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        u32::from_le(self.generation.load(Ordering::Acquire))
    }

    /// Returns the largest code of a severity with which an event may pass.
    #[inline]
    pub(crate) fn max_severity(&self) -> u32 {
        u32::from_le(self.max_severity.load(Ordering::Relaxed))
    }

    /// Sleeps until the generation is not `seen` any more. May return earlier.
    ///
    /// # Errors
    /// When this kernel cannot wait for a word of a shared mapping.
    #[cfg(feature = "tracing")]
    pub(crate) fn wait(&self, seen: u32) -> io::Result<()> {
        match futex::wait(&self.generation, futex::Flags::empty(), seen.to_le(), None) {
            Ok(()) | Err(io::Errno::AGAIN | io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A [`Published`] that has a value from the beginning.
#[derive(Debug)]
pub(crate) struct PublishedFrom<T: 'static> {
    value: AtomicPtr<T>,
    marker: PhantomData<&'static T>,
}

impl<T: Sync> PublishedFrom<T> {
    pub(crate) const fn new(first: &'static T) -> Self {
        Self {
            value: AtomicPtr::new(ptr::from_ref(first).cast_mut()),
            marker: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: from a `&'static T` in `new` or `set`; acquire makes what was written before
        // `set` visible.
        unsafe { &*self.value.load(Ordering::Acquire) }
    }

    pub(crate) fn set(&self, value: &'static T) {
        self.value
            .store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }
}

/// Words that the kernel sets to zero in a forked child, however it was forked.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ForkWords {
    /// Number of the process among its ancestors that traced; 0 until it has set itself up.
    pub(crate) generation: AtomicU32,
    /// 1 while a thread sets the process up. A child does not inherit a lock that another thread of
    /// its parent held.
    pub(crate) lock: AtomicU32,
}

/// Returns a page of [`ForkWords`], which is never unmapped.
pub(crate) fn map_fork_words() -> io::Result<&'static ForkWords> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so no existing mapping changes.
    let start = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            RING_PAGE_SIZE,
            protection,
            MapFlags::PRIVATE,
        )?
    };
    // SAFETY: the range is the mapping made above, and nothing is in it yet.
    unsafe { madvise(start, RING_PAGE_SIZE, Advice::LinuxWipeOnFork)? };
    let words: *const ForkWords = start.cast();
    // SAFETY: zeroed memory of a page that stays mapped is a valid `ForkWords`; its fields are
    // atomics.
    unsafe { words.as_ref() }.ok_or(io::Errno::NOMEM)
}

/// Descriptor that holds the lock on `meta`, -1 when there is none. Kept open for file systems on
/// which a mapping does not keep the lock (overlayfs).
static LOCK_FD: AtomicI32 = AtomicI32::new(-1);
/// Device and inode of the locked file: the program may have closed the descriptor, and the number
/// may be another file.
static LOCK_FILE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Wakes the threads that wait for a new filter in the process whose file `control` this is. To be
/// called after the generation has been changed. The file may be hostile: nothing of it is read
/// here.
///
/// # Errors
/// When the file is shorter than a page, or the kernel refuses to map it.
pub(crate) fn wake_filter_watchers(control: impl AsFd) -> io::Result<()> {
    // SAFETY: the kernel chooses the address, so no existing mapping changes.
    let start = unsafe {
        mmap(
            ptr::null_mut(),
            CONTROL_SIZE,
            ProtFlags::READ,
            MapFlags::SHARED,
            control,
            0,
        )?
    };
    // SAFETY: aligned, and mapped until the end of this function. The word is atomic and never
    // loaded: should the file be cut meanwhile, the system call fails, and nothing else happens.
    let word: &AtomicU32 = unsafe { &*start.byte_add(CONTROL_GENERATION_OFFSET).cast() };
    let woken = futex::wake(word, futex::Flags::empty(), i32::MAX.unsigned_abs());
    // SAFETY: the mapping made above, which nothing refers to any more.
    unsafe { munmap(start, CONTROL_SIZE)? };
    woken.map(|_| ())
}

/// Runs `start` with all signals blocked, so that a thread that it starts never runs a signal
/// handler of the program.
#[cfg(feature = "tracing")]
pub(crate) fn with_signals_blocked<R>(start: impl FnOnce() -> R) -> R {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills `all`, the second reads it and fills `old`; neither can fail
    // with these arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let result = start();
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), ptr::null_mut()) };
    result
}

/// Keeps `file` open until the process ends, but not in its forked children: the lock is to end
/// with the process.
pub(crate) fn keep_lock(file: OwnedFd) -> io::Result<()> {
    static HAS_HANDLER: AtomicBool = AtomicBool::new(false);
    // A child that was forked without the handler still has its parent's.
    release_lock_in_child();
    let stat = rustix::fs::fstat(&file)?;
    let [device, inode] = &LOCK_FILE;
    device.store(stat.st_dev, Ordering::Relaxed);
    inode.store(stat.st_ino, Ordering::Relaxed);
    LOCK_FD.store(file.into_raw_fd(), Ordering::Release);
    if !HAS_HANDLER.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, and makes only calls that are safe
        // after a fork.
        let _ = unsafe { pthread_atfork(None, None, Some(release_lock_in_child)) };
    }
    Ok(())
}

extern "C" fn release_lock_in_child() {
    let fd = LOCK_FD.swap(-1, Ordering::Acquire);
    if fd < 0 {
        return;
    }
    // SAFETY: the borrow lasts for one call; a descriptor that is closed by now is only an error.
    let Ok(stat) = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }) else {
        return;
    };
    let [device, inode] = &LOCK_FILE;
    if (stat.st_dev, stat.st_ino)
        == (
            device.load(Ordering::Relaxed),
            inode.load(Ordering::Relaxed),
        )
    {
        // SAFETY: the descriptor is the one that `keep_lock` has given up: it is the same file.
        unsafe { io::close(fd) };
    }
}
