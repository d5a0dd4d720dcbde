//! The file `meta`: who the process is, and the classes of its events. The process holds an
//! exclusive `flock` on it for as long as it lives.

use super::{Bytes, FieldType, FormatError, VERSION, set};
use crate::Severity;

/// First eight bytes of `meta`.
pub const META_MAGIC: u64 = u64::from_le_bytes(*b"TRCMETA\n");
/// Bytes of the header; the records begin here.
pub const META_HEADER_SIZE: usize = 4096;
/// Bytes of the fixed part of the header, its checksum included.
pub const META_FIXED_SIZE: usize = 2048;
/// Offset of `committed` u64: bytes of complete records after the header.
pub const META_COMMITTED_OFFSET: usize = 2048;
/// Offset of `clock_offset` i64: CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds, as last
/// sampled.
pub const META_CLOCK_OFFSET_OFFSET: usize = 2112;
/// Offset of `lost_no_ring` u64: events lost because no ring could be made for them or their class
/// did not fit.
pub const META_LOST_OFFSET: usize = 2176;

/// Longest program path in bytes; the rest is cut.
pub const MAX_PROGRAM_SIZE: usize = 1024;
/// Longest name (target, file, event, field) in bytes; the rest is cut by the writer and refused by
/// a reader.
pub const MAX_NAME_SIZE: usize = 1024;
/// Largest number of event classes of one process.
pub const MAX_CLASSES: u32 = u16::MAX as u32;
/// Largest number of fields of one event class.
pub const MAX_FIELDS: usize = 64;
/// Bytes before the content of a record in `meta`: length u32, kind u32, checksum u32.
pub const META_RECORD_HEADER_SIZE: usize = 12;
/// Largest number of content bytes of a record in `meta`.
pub const MAX_META_RECORD_SIZE: usize = 128 << 10;
/// Largest number of bytes of all records of one `meta`.
pub const MAX_META_SIZE: u64 = 64 << 20;

/// Kind of a record in `meta` that describes an event class. Readers skip other kinds.
pub const META_KIND_CLASS: u32 = 1;

/// Clock of the timestamps: CLOCK_MONOTONIC in nanoseconds.
pub const CLOCK_MONOTONIC_NS: u32 = 1;

/// The header of `meta`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaHeader {
    /// Process id in the producer's pid namespace.
    pub pid: u32,
    /// Effective user id of the process when it made the directory.
    pub uid: u32,
    /// Start time of the process, clock ticks since boot, as in `/proc/<pid>/stat`; 0 when unknown.
    pub start_ticks: u64,
    /// Random id of the trace.
    pub uuid: [u8; 16],
    /// The kernel's boot id; zero when unknown.
    pub boot_id: [u8; 16],
    /// Name of the process as the kernel has it, padded with NUL.
    pub process_name: [u8; 16],
    /// Path of the program; not necessarily UTF-8.
    pub program: Vec<u8>,
    /// The number at [`META_COMMITTED_OFFSET`].
    pub committed: u64,
    /// The number at [`META_CLOCK_OFFSET_OFFSET`].
    pub clock_offset: i64,
    /// The number at [`META_LOST_OFFSET`].
    pub lost_no_ring: u64,
}

impl MetaHeader {
    /// Returns the bytes at the beginning of the file.
    #[must_use]
    pub fn encode(&self) -> [u8; META_HEADER_SIZE] {
        let mut bytes = [0; META_HEADER_SIZE];
        let program = self
            .program
            .get(..MAX_PROGRAM_SIZE)
            .unwrap_or(&self.program);
        let length = u32::try_from(program.len()).unwrap_or_default();
        set(&mut bytes, 0, &META_MAGIC.to_le_bytes());
        set(&mut bytes, 8, &VERSION.to_le_bytes());
        set(&mut bytes, 12, &CLOCK_MONOTONIC_NS.to_le_bytes());
        set(&mut bytes, 16, &self.pid.to_le_bytes());
        set(&mut bytes, 20, &self.uid.to_le_bytes());
        set(&mut bytes, 24, &self.start_ticks.to_le_bytes());
        set(&mut bytes, 32, &self.uuid);
        set(&mut bytes, 48, &self.boot_id);
        set(&mut bytes, 64, &self.process_name);
        set(&mut bytes, 80, &length.to_le_bytes());
        set(&mut bytes, 84, program);
        let crc = crc32fast::hash(bytes.get(..META_FIXED_SIZE - 4).unwrap_or_default());
        set(&mut bytes, META_FIXED_SIZE - 4, &crc.to_le_bytes());
        set(
            &mut bytes,
            META_COMMITTED_OFFSET,
            &self.committed.to_le_bytes(),
        );
        set(
            &mut bytes,
            META_CLOCK_OFFSET_OFFSET,
            &self.clock_offset.to_le_bytes(),
        );
        set(
            &mut bytes,
            META_LOST_OFFSET,
            &self.lost_no_ring.to_le_bytes(),
        );
        bytes
    }

    /// Reads the header from the first bytes of the file.
    ///
    /// # Errors
    /// When bytes are missing, the magic number, version or checksum is wrong, or a value is
    /// outside its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let what = "meta header";
        let bytes = Bytes { what, bytes };
        bytes.slice(0, META_HEADER_SIZE)?;
        if bytes.u64(0)? != META_MAGIC {
            return Err(FormatError::Magic { what });
        }
        let version = bytes.u32(8)?;
        if version != VERSION {
            return Err(FormatError::Version { what, got: version });
        }
        let fixed = bytes.slice(0, META_FIXED_SIZE - 4)?;
        if crc32fast::hash(fixed) != bytes.u32(META_FIXED_SIZE - 4)? {
            return Err(FormatError::Checksum { what });
        }
        let clock = bytes.u32(12)?;
        if clock != CLOCK_MONOTONIC_NS {
            return Err(FormatError::OutOfRange {
                what: "clock",
                got: clock.into(),
            });
        }
        let length = bytes.u32(80)?;
        let program_size = usize::try_from(length).unwrap_or(usize::MAX);
        if program_size > MAX_PROGRAM_SIZE {
            return Err(FormatError::OutOfRange {
                what: "program length",
                got: length.into(),
            });
        }
        let committed = bytes.u64(META_COMMITTED_OFFSET)?;
        if committed > MAX_META_SIZE {
            return Err(FormatError::OutOfRange {
                what: "committed length",
                got: committed,
            });
        }
        Ok(Self {
            pid: bytes.u32(16)?,
            uid: bytes.u32(20)?,
            start_ticks: bytes.u64(24)?,
            uuid: bytes.array(32)?,
            boot_id: bytes.array(48)?,
            process_name: bytes.array(64)?,
            program: bytes.slice(84, program_size)?.to_vec(),
            committed,
            clock_offset: i64::from_le_bytes(bytes.array(META_CLOCK_OFFSET_OFFSET)?),
            lost_no_ring: bytes.u64(META_LOST_OFFSET)?,
        })
    }
}

/// One event class: what a call site writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventClass {
    /// Number in the events, from 1 to [`MAX_CLASSES`].
    pub id: u32,
    /// Severity of the call site.
    pub severity: Severity,
    /// Line of the call site, 0 when unknown.
    pub line: u32,
    /// Module or component, the left side of a filter directive.
    pub target: String,
    /// Source file of the call site, empty when unknown.
    pub file: String,
    /// Name of the event.
    pub name: String,
    /// Names and types of the fields, in the order of the bytes.
    pub fields: Vec<(String, FieldType)>,
}

impl EventClass {
    /// Returns the whole record, header included. Names beyond [`MAX_NAME_SIZE`] are cut, fields
    /// beyond [`MAX_FIELDS`] left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut content = Vec::with_capacity(256);
        content.extend_from_slice(&self.id.to_le_bytes());
        content.extend_from_slice(&self.line.to_le_bytes());
        content.push(self.severity.code());
        put_name(&mut content, &self.target);
        put_name(&mut content, &self.file);
        put_name(&mut content, &self.name);
        let fields = self.fields.get(..MAX_FIELDS).unwrap_or(&self.fields);
        content.push(u8::try_from(fields.len()).unwrap_or_default());
        for (name, kind) in fields {
            content.push(kind.code());
            put_name(&mut content, name);
        }
        let mut record = Vec::with_capacity(META_RECORD_HEADER_SIZE + content.len());
        record.extend_from_slice(
            &u32::try_from(content.len())
                .unwrap_or_default()
                .to_le_bytes(),
        );
        record.extend_from_slice(&META_KIND_CLASS.to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(&content).to_le_bytes());
        record.extend_from_slice(&content);
        record
    }

    /// Reads the content of a record of kind [`META_KIND_CLASS`].
    ///
    /// # Errors
    /// When bytes are missing or left over, or a number or length is outside its limits.
    pub fn decode(content: &[u8]) -> Result<Self, FormatError> {
        let bytes = Bytes {
            what: "event class",
            bytes: content,
        };
        let id = bytes.u32(0)?;
        if id == 0 || id > MAX_CLASSES {
            return Err(FormatError::OutOfRange {
                what: "event class id",
                got: id.into(),
            });
        }
        let line = bytes.u32(4)?;
        let code = bytes.u8(8)?;
        let severity = Severity::from_code(code).ok_or(FormatError::OutOfRange {
            what: "severity",
            got: code.into(),
        })?;
        let mut offset = 9;
        let target = read_name(bytes, &mut offset)?;
        let file = read_name(bytes, &mut offset)?;
        let name = read_name(bytes, &mut offset)?;
        let count = usize::from(bytes.u8(offset)?);
        offset += 1;
        if count > MAX_FIELDS {
            return Err(FormatError::OutOfRange {
                what: "field count",
                got: count as u64,
            });
        }
        let mut fields = Vec::with_capacity(count);
        for _ in 0..count {
            let code = bytes.u8(offset)?;
            offset += 1;
            let kind = FieldType::from_code(code).ok_or(FormatError::OutOfRange {
                what: "field type",
                got: code.into(),
            })?;
            fields.push((read_name(bytes, &mut offset)?, kind));
        }
        if offset != content.len() {
            return Err(FormatError::OutOfRange {
                what: "event class length",
                got: content.len() as u64,
            });
        }
        Ok(Self {
            id,
            severity,
            line,
            target,
            file,
            name,
            fields,
        })
    }
}

fn put_name(content: &mut Vec<u8>, name: &str) {
    let name = name
        .get(..name.floor_char_boundary(MAX_NAME_SIZE))
        .unwrap_or_default();
    content.extend_from_slice(&u16::try_from(name.len()).unwrap_or_default().to_le_bytes());
    content.extend_from_slice(name.as_bytes());
}

fn read_name(bytes: Bytes<'_>, offset: &mut usize) -> Result<String, FormatError> {
    let length = usize::from(bytes.u16(*offset)?);
    if length > MAX_NAME_SIZE {
        return Err(FormatError::OutOfRange {
            what: "name length",
            got: length as u64,
        });
    }
    let name = bytes.slice(*offset + 2, length)?;
    *offset += 2 + length;
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Walks the records of `meta`: the bytes after the header, up to the committed length.
///
/// Items are whole records; `Err` stands for one that was refused, and the walk goes on after it.
/// The walk ends at the first record whose length cannot be true or that is not whole;
/// [`Self::consumed`] says where.
#[derive(Debug, Clone)]
pub struct MetaRecords<'a> {
    bytes: &'a [u8],
    consumed: usize,
}

impl<'a> MetaRecords<'a> {
    /// Begins a walk over `bytes`, which begin at a record.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, consumed: 0 }
    }

    /// Bytes that the walk has passed. A reader continues here when `meta` has grown.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.consumed
    }
}

impl Iterator for MetaRecords<'_> {
    type Item = Result<EventClass, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let what = "meta record";
            let bytes = Bytes {
                what,
                bytes: self.bytes.get(self.consumed..)?,
            };
            let length = usize::try_from(bytes.u32(0).ok()?).ok()?;
            if length > MAX_META_RECORD_SIZE {
                return None;
            }
            let (kind, crc) = (bytes.u32(4).ok()?, bytes.u32(8).ok()?);
            let content = bytes.slice(META_RECORD_HEADER_SIZE, length).ok()?;
            self.consumed += META_RECORD_HEADER_SIZE + length;
            if crc32fast::hash(content) != crc {
                return Some(Err(FormatError::Checksum { what }));
            }
            if kind == META_KIND_CLASS {
                return Some(EventClass::decode(content));
            }
        }
    }
}
