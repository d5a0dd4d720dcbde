//! Why a file is not used.

use std::io;

use thiserror::Error;

/// Why a file is not used.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// The file cannot be opened or read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file is no ELF file, or a broken one.
    #[error("not a valid ELF file: {0}")]
    Elf(#[from] object::Error),
    /// The debug information is broken.
    #[error("broken debug information: {0}")]
    Dwarf(#[from] gimli::Error),
    /// What is needed of the file is more than may be kept.
    #[error("more than {} MiB of symbols and debug information", .0 >> 20)]
    TooLarge(u64),
    /// The file is one of another build.
    #[error("its build id is not that in the trace")]
    OtherBuild,
    /// The name of the file is not one that is opened.
    #[error("not a plain absolute path")]
    Path,
}
