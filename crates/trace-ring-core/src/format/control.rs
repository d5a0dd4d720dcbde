//! The file `control`: the filter of a process, which other processes of the same user (or root)
//! may replace.

use super::{Bytes, FormatError, VERSION, set};
use crate::Severity;
use crate::filter::Filter;

/// First eight bytes of `control`.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"TRCCTRL\n");
/// Bytes of the file.
pub const CONTROL_SIZE: usize = 4096;
/// Offset of the generation u32. Its writer adds 1 (wrapping) **after** the rest of the file is in
/// place.
pub const CONTROL_GENERATION_OFFSET: usize = 12;
/// Offset of the u32 that says up to which severity code the directives let anything pass, 0 when
/// nothing; after the generation, so that a call site that passes in no case finds out by one
/// comparison.
pub const CONTROL_MAX_SEVERITY_OFFSET: usize = 16;
/// Offset of length u32, checksum u32 and directives: what a writer replaces in one `pwrite` before
/// the generation.
pub const CONTROL_BODY_OFFSET: usize = 64;
/// Largest number of bytes of directives.
pub const MAX_DIRECTIVES_SIZE: usize = CONTROL_SIZE - CONTROL_BODY_OFFSET - 8;

/// What the file `control` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Changes with every new filter.
    pub generation: u32,
    /// The directives, in the form of `TRACE_RING_FILTER`.
    pub directives: String,
}

impl Control {
    /// Returns the bytes of the whole file. `None` when the directives are longer than
    /// [`MAX_DIRECTIVES_SIZE`].
    #[must_use]
    pub fn encode(&self) -> Option<[u8; CONTROL_SIZE]> {
        let mut bytes = [0; CONTROL_SIZE];
        set(&mut bytes, 0, &CONTROL_MAGIC.to_le_bytes());
        set(&mut bytes, 8, &VERSION.to_le_bytes());
        set(
            &mut bytes,
            CONTROL_GENERATION_OFFSET,
            &self.generation.to_le_bytes(),
        );
        set(
            &mut bytes,
            CONTROL_MAX_SEVERITY_OFFSET,
            &Self::max_severity_word(&self.directives).to_le_bytes(),
        );
        set(
            &mut bytes,
            CONTROL_BODY_OFFSET,
            &Self::encode_body(&self.directives)?,
        );
        Some(bytes)
    }

    /// Returns what belongs at [`CONTROL_MAX_SEVERITY_OFFSET`] with these directives.
    #[must_use]
    pub fn max_severity_word(directives: &str) -> u32 {
        let passes =
            Filter::parse(directives).map_or(Some(Severity::Trace), |filter| filter.max_severity());
        passes.map_or(0, |severity| severity.code().into())
    }

    /// Returns the bytes from [`CONTROL_BODY_OFFSET`] on that put `directives` in place.
    #[must_use]
    pub fn encode_body(directives: &str) -> Option<Vec<u8>> {
        let length = u32::try_from(directives.len()).ok()?;
        if directives.len() > MAX_DIRECTIVES_SIZE {
            return None;
        }
        let mut body = Vec::with_capacity(8 + directives.len());
        body.extend_from_slice(&length.to_le_bytes());
        body.extend_from_slice(&crc32fast::hash(directives.as_bytes()).to_le_bytes());
        body.extend_from_slice(directives.as_bytes());
        Some(body)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When bytes are missing, the magic number, version or checksum is wrong (a writer is in the
    /// middle of a change), or the directives are too long or not UTF-8.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "control file";
        let bytes = Bytes { what, bytes };
        bytes.slice(0, CONTROL_SIZE)?;
        if bytes.u64(0)? != CONTROL_MAGIC {
            return Err(FormatError::Magic { what });
        }
        let version = bytes.u32(8)?;
        if version != VERSION {
            return Err(FormatError::Version { what, got: version });
        }
        let generation = bytes.u32(CONTROL_GENERATION_OFFSET)?;
        let length = bytes.u32(CONTROL_BODY_OFFSET)?;
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size > MAX_DIRECTIVES_SIZE {
            return Err(FormatError::OutOfRange {
                what: "directives length",
                got: length.into(),
            });
        }
        let text = bytes.slice(CONTROL_BODY_OFFSET + 8, size)?;
        if crc32fast::hash(text) != bytes.u32(CONTROL_BODY_OFFSET + 4)? {
            return Err(FormatError::Checksum { what });
        }
        let directives =
            String::from_utf8(text.to_vec()).map_err(|_| FormatError::Checksum { what })?;
        Ok(Self {
            generation,
            directives,
        })
    }
}
