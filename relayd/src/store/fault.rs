//! Kinds of file system faults, and how often each has happened.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::StoreError;

/// The kind of a file system fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum FaultKind {
    /// The file system is full.
    Full,
    /// The disk quota of the user is exhausted.
    Quota,
    /// The device has failed.
    Device,
    /// The file has reached the maximum size of the file system or of the process (`RLIMIT_FSIZE`).
    TooLarge,
    /// The file system is read-only, or the user may not write there.
    Forbidden,
    /// No file descriptor is left for the process or the system.
    Descriptors,
    /// Any other fault. It is not expected to pass by itself.
    Other,
}

impl FaultKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Full,
        Self::Quota,
        Self::Device,
        Self::TooLarge,
        Self::Forbidden,
        Self::Descriptors,
        Self::Other,
    ];

    /// The kind of an error of the system.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::NOSPC) => Self::Full,
            Some(Errno::DQUOT) => Self::Quota,
            Some(Errno::IO) => Self::Device,
            Some(Errno::FBIG) => Self::TooLarge,
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Self::Forbidden,
            Some(Errno::MFILE | Errno::NFILE) => Self::Descriptors,
            _ => Self::Other,
        }
    }

    /// Label of the kind in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quota => "quota",
            Self::Device => "device",
            Self::TooLarge => "too_large",
            Self::Forbidden => "forbidden",
            Self::Descriptors => "descriptors",
            Self::Other => "other",
        }
    }

    /// Whether the same call may succeed later, when space is free again or files have been closed.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Full | Self::Quota | Self::Descriptors)
    }
}

/// Counters of faults, one for each kind.
#[derive(Debug, Default)]
pub struct Faults([AtomicU64; FaultKind::ALL.len()]);

impl Faults {
    /// Counts the fault of an error.
    pub fn count(&self, error: &StoreError) {
        if let Some(number) = self.0.get(error.kind() as usize) {
            number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of faults of this kind.
    #[must_use]
    pub fn of(&self, kind: FaultKind) -> u64 {
        let number = self.0.get(kind as usize);
        number.map_or(0, |number| number.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn faults_are_counted_by_kind() {
        let faults = Faults::default();
        for errno in [Errno::NOSPC, Errno::NOSPC, Errno::DQUOT, Errno::IO] {
            let error = StoreError::on("write", Path::new("x"))(errno.into());
            faults.count(&error);
        }
        faults.count(&StoreError::on("write", Path::new("x"))(io::Error::other(
            "no such thing",
        )));
        let counts = FaultKind::ALL.map(|kind| faults.of(kind));
        assert_eq!(counts, [2, 1, 1, 0, 0, 0, 1]);
    }
}
