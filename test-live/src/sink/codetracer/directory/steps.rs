//! The steps of writing a directory, at each of which a test can stop it.

use std::io;

/// Called before each change of a file or name. In tests it fails at the step that [`fail_at`]
/// names, and from then on.
#[cfg(not(test))]
#[inline]
pub(super) fn check() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) fn check() -> io::Result<()> {
    tests_only::check()
}

#[cfg(test)]
pub(super) use tests_only::fail_at;

#[cfg(test)]
mod tests_only {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    /// Lets this thread do so many steps, and no more: the disk is full, or the process is killed.
    pub(in crate::sink::codetracer) fn fail_at(steps: u64) {
        LEFT.set(steps);
    }

    pub(super) fn check() -> io::Result<()> {
        let left = LEFT.get().checked_sub(1);
        LEFT.set(left.unwrap_or_default());
        match left {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}
