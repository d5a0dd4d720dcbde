//! The output of the sink, compressed if its name says so.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Where a trace is written.
pub(super) enum Output {
    Plain(Box<dyn Write>),
    Gzip(GzEncoder<Box<dyn Write>>),
}

impl Output {
    /// An output that is compressed if the name of the file ends in `.gz`.
    pub(super) fn new(out: Box<dyn Write>, path: Option<&Path>) -> Self {
        let extension = path.and_then(Path::extension);
        match extension.is_some_and(|extension| extension == "gz") {
            true => Self::Gzip(GzEncoder::new(out, Compression::default())),
            false => Self::Plain(out),
        }
    }

    /// Writes what is still to be written of a compressed file.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(out) => {
                out.try_finish()?;
                out.get_mut().flush()
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(out) => out.flush(),
        }
    }
}
