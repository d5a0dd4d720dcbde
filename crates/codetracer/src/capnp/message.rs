//! A message of Cap'n Proto: its packed encoding, segments, and pointers.
//! (capnproto.org/encoding.html)

use std::cell::Cell;

use thiserror::Error;

/// Deepest nesting of structures and lists, as for the published reader.
pub(super) const MAX_DEPTH: u32 = 64;

/// Segments of a message: what the published reader allows.
const MAX_SEGMENTS: usize = 512;

/// The reason why a message or a part of it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum MessageError {
    #[error("the message is incomplete")]
    Incomplete,
    #[error("the message is longer than {0} bytes")]
    TooLong(usize),
    #[error("malformed segment table")]
    Segments,
    #[error("a pointer leads out of the message")]
    Pointer,
    #[error("a text is not UTF-8")]
    Text,
    #[error("structures are nested too deeply")]
    TooDeep,
    #[error("structures are referred to more than once")]
    Repeated,
    #[error("unknown kind {0}")]
    UnknownKind(u16),
}

/// Undoes the packed encoding as the bytes arrive.
#[derive(Debug)]
pub(crate) struct Unpacker {
    max_bytes: usize,
    /// The packed bytes of the word that is incomplete.
    packed: Vec<u8>,
    /// Words that follow as they are.
    raw_words: usize,
    bytes: Vec<u8>,
}

impl Unpacker {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            packed: Vec::new(),
            raw_words: 0,
            bytes: Vec::new(),
        }
    }

    /// Adds packed bytes of the message.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), MessageError> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.extend_from_slice(bytes);
        let mut rest = &*packed;
        while let Some(after) = self.unpack_word(rest) {
            rest = after;
            if self.bytes.len() > self.max_bytes {
                return Err(MessageError::TooLong(self.max_bytes));
            }
        }
        // A tag and its bytes may be cut anywhere: the rest waits for the next call.
        self.packed = rest.to_vec();
        Ok(())
    }

    /// Unpacks a tag and what belongs to it. `None` if it is incomplete.
    fn unpack_word<'a>(&mut self, packed: &'a [u8]) -> Option<&'a [u8]> {
        if self.raw_words > 0 {
            let (word, rest) = packed.split_first_chunk::<8>()?;
            self.bytes.extend_from_slice(word);
            self.raw_words -= 1;
            return Some(rest);
        }
        let (&tag, mut rest) = packed.split_first()?;
        let mut word = [0; 8];
        for (bit, byte) in word.iter_mut().enumerate() {
            if tag >> bit & 1 == 1 {
                let (&value, after) = rest.split_first()?;
                *byte = value;
                rest = after;
            }
        }
        if !matches!(tag, 0 | 0xff) {
            self.bytes.extend_from_slice(&word);
            return Some(rest);
        }
        let (&count, rest) = rest.split_first()?;
        // After the last `?`: a word that is cut must not be added twice.
        self.bytes.extend_from_slice(&word);
        if tag == 0 {
            // A byte of input makes 2 KiB of zeros at most, so that the check after each word is
            // enough.
            let length = self.bytes.len() + 8 * usize::from(count);
            self.bytes.resize(length, 0);
        } else {
            self.raw_words = count.into();
        }
        Some(rest)
    }

    /// Whether the message is there as a whole.
    pub(crate) fn is_complete(&self) -> bool {
        let is_whole = self.packed.is_empty() && self.raw_words == 0;
        is_whole && segments(&self.bytes).is_ok_and(|(_, end)| end <= self.bytes.len())
    }

    /// Takes the message out, which must be complete.
    pub(crate) fn finish(self) -> Result<Message, MessageError> {
        if !self.is_complete() {
            return Err(MessageError::Incomplete);
        }
        let (segments, end) = segments(&self.bytes)?;
        let words = end / 8;
        Ok(Message {
            bytes: self.bytes,
            segments,
            // Each word is read once, and each structure and list costs one more. Pointers to the
            // same words again and again would make a short message as long as one likes.
            budget: Cell::new(words.saturating_mul(4)),
        })
    }
}

/// Begin and length of each segment in bytes, and the end of the last.
fn segments(bytes: &[u8]) -> Result<(Vec<(usize, usize)>, usize), MessageError> {
    let number = |at: usize| {
        let four = bytes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*four)).ok()
    };
    let count = number(0).ok_or(MessageError::Incomplete)?;
    // The table has the number of segments less one.
    let count = count.saturating_add(1);
    if count > MAX_SEGMENTS {
        return Err(MessageError::Segments);
    }
    // The table is filled up to a whole word.
    let mut begin = (4 + 4 * count).next_multiple_of(8);
    let mut segments = Vec::with_capacity(count);
    for segment in 0..count {
        let words = number(4 + 4 * segment).ok_or(MessageError::Incomplete)?;
        let length = words.checked_mul(8).ok_or(MessageError::Segments)?;
        segments.push((begin, length));
        begin = begin.checked_add(length).ok_or(MessageError::Segments)?;
    }
    Ok((segments, begin))
}

/// A message. All places in it are checked when they are used.
#[derive(Debug)]
pub(crate) struct Message {
    bytes: Vec<u8>,
    segments: Vec<(usize, usize)>,
    budget: Cell<usize>,
}

/// Where a pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    segment: usize,
    /// Position of the pointer in its segment, in bytes; `None` if the structure has no such
    /// pointer.
    at: Option<usize>,
}

/// A structure of the message, with its data and then its pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Structure {
    segment: usize,
    at: usize,
    data_bytes: usize,
    pointers: usize,
}

/// A list. (`size` of the encoding: 2 for bytes, 6 for pointers, 7 for structures)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    segment: usize,
    at: usize,
    size: u8,
    length: usize,
    data_bytes: usize,
    pointers: usize,
}

impl Message {
    /// The structure at the beginning of the message.
    pub(crate) fn root(&self) -> Result<Structure, MessageError> {
        let (segment, at) = (0, Some(0));
        self.structure(Place { segment, at })
    }

    /// A pointer of a structure. One that the structure does not have is null.
    pub(crate) fn pointer(&self, of: Structure, number: usize) -> Place {
        // A structure of an older schema has fewer pointers.
        let at = (number < of.pointers).then_some(of.at + of.data_bytes + 8 * number);
        let segment = of.segment;
        Place { segment, at }
    }

    /// Some bytes of the data of a structure; zeros where it has none.
    pub(crate) fn data<const N: usize>(&self, of: Structure, at: usize) -> [u8; N] {
        // A structure of an older schema has less data, which reads as zeros.
        let is_there = at + N <= of.data_bytes;
        let bytes = is_there.then(|| self.bytes(of.segment, of.at + at, N));
        let bytes = bytes.and_then(Result::ok).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }

    /// The structure that a pointer leads to; an empty one for a null pointer.
    pub(crate) fn structure(&self, place: Place) -> Result<Structure, MessageError> {
        let Some((segment, target, word)) = self.follow(place)? else {
            return Ok(Structure {
                segment: 0,
                at: 0,
                data_bytes: 0,
                pointers: 0,
            });
        };
        if word & 3 != 0 {
            return Err(MessageError::Pointer);
        }
        let (data_bytes, pointers) = sizes(word);
        self.spend((data_bytes / 8) + pointers + 1)?;
        self.bytes(segment, target, data_bytes + 8 * pointers)?;
        Ok(Structure {
            segment,
            at: target,
            data_bytes,
            pointers,
        })
    }

    /// The list that a pointer leads to; an empty one for a null pointer.
    pub(crate) fn list(&self, place: Place) -> Result<List, MessageError> {
        let mut list = List {
            segment: 0,
            at: 0,
            size: 0,
            length: 0,
            data_bytes: 0,
            pointers: 0,
        };
        let Some((segment, target, word)) = self.follow(place)? else {
            return Ok(list);
        };
        if word & 3 != 1 {
            return Err(MessageError::Pointer);
        }
        let [.., size, _, _, _] = word.to_le_bytes();
        list.segment = segment;
        list.at = target;
        list.size = size & 7;
        list.length = usize::try_from(word >> 35).unwrap_or(usize::MAX);
        let bytes = match list.size {
            2 => list.length,
            6 => list.length.saturating_mul(8),
            7 => {
                let words = list.length;
                let tag = self.word(segment, target)?;
                list.at += 8;
                list.length =
                    usize::try_from((tag & u64::from(u32::MAX)) >> 2).unwrap_or(usize::MAX);
                (list.data_bytes, list.pointers) = sizes(tag);
                // Structures without content would be a list of any length in no bytes.
                let stride = list.data_bytes + 8 * list.pointers;
                if tag & 3 != 0 || (stride == 0 && list.length > 0) {
                    return Err(MessageError::Pointer);
                }
                if stride.saturating_mul(list.length) > words.saturating_mul(8) {
                    return Err(MessageError::Pointer);
                }
                words.saturating_mul(8)
            }
            // The schema has no lists of elements of other sizes.
            _ => return Err(MessageError::Pointer),
        };
        self.spend(bytes / 8 + 1)?;
        self.bytes(segment, list.at, bytes)?;
        Ok(list)
    }

    /// An element of a list of structures; `None` after the last one.
    pub(crate) fn element(&self, list: List, number: usize) -> Option<Structure> {
        if list.size != 7 || number >= list.length {
            return None;
        }
        Some(Structure {
            segment: list.segment,
            at: list.at + number * (list.data_bytes + 8 * list.pointers),
            data_bytes: list.data_bytes,
            pointers: list.pointers,
        })
    }

    /// An element of a list of pointers; `None` after the last one.
    pub(crate) fn pointer_element(&self, list: List, number: usize) -> Option<Place> {
        let is_there = list.size == 6 && number < list.length;
        is_there.then_some(Place {
            segment: list.segment,
            at: Some(list.at + 8 * number),
        })
    }

    /// The bytes of a list of bytes.
    pub(crate) fn list_bytes(&self, place: Place) -> Result<&[u8], MessageError> {
        let list = self.list(place)?;
        match list.size {
            2 => self.bytes(list.segment, list.at, list.length),
            _ if list.length == 0 => Ok(&[]),
            _ => Err(MessageError::Pointer),
        }
    }

    /// A text, without the NUL at its end.
    pub(crate) fn text(&self, place: Place) -> Result<&str, MessageError> {
        let bytes = self.list_bytes(place)?;
        // Texts of Cap'n Proto end with a NUL, which belongs to the list.
        let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        std::str::from_utf8(text).map_err(|_| MessageError::Text)
    }

    /// Follows a pointer over other segments: the segment and the position of what it leads to, and
    /// the word that describes it. `None` if the pointer is null.
    fn follow(&self, place: Place) -> Result<Option<(usize, usize, u64)>, MessageError> {
        let Some(at) = place.at else { return Ok(None) };
        let word = self.word(place.segment, at)?;
        if word == 0 {
            return Ok(None);
        }
        // Only a far pointer (type 2) leads to another segment.
        if word & 3 != 2 {
            let target = offset(at, word)?;
            return Ok(Some((place.segment, target, word)));
        }
        let far = |word: u64| {
            let segment = usize::try_from(word >> 32).unwrap_or(usize::MAX);
            let at = usize::try_from((word & u64::from(u32::MAX)) >> 3).unwrap_or(usize::MAX);
            (segment, at.saturating_mul(8))
        };
        let (segment, pad) = far(word);
        let landing = self.word(segment, pad)?;
        // A landing pad of one word is itself the pointer; one of two words is a far pointer and a
        // tag.
        if word & 4 == 0 {
            if landing & 3 > 1 {
                return Err(MessageError::Pointer);
            }
            let target = offset(pad, landing)?;
            return Ok((landing != 0).then_some((segment, target, landing)));
        }
        if landing & 7 != 2 {
            return Err(MessageError::Pointer);
        }
        let tag = self.word(segment, pad.saturating_add(8))?;
        let (segment, target) = far(landing);
        Ok(Some((segment, target, tag)))
    }

    fn word(&self, segment: usize, at: usize) -> Result<u64, MessageError> {
        let bytes = self.bytes(segment, at, 8)?;
        let word = bytes.first_chunk().ok_or(MessageError::Pointer)?;
        Ok(u64::from_le_bytes(*word))
    }

    fn bytes(&self, segment: usize, at: usize, length: usize) -> Result<&[u8], MessageError> {
        // Within its segment and not only within the message: other segments are other objects.
        let (begin, size) = self.segments.get(segment).ok_or(MessageError::Pointer)?;
        let end = at.checked_add(length).filter(|end| end <= size);
        let end = end.ok_or(MessageError::Pointer)?;
        let range = begin + at..begin + end;
        self.bytes.get(range).ok_or(MessageError::Pointer)
    }

    fn spend(&self, words: usize) -> Result<(), MessageError> {
        let left = self.budget.get().checked_sub(words);
        // Spent also where it is not enough, so that every later call fails too.
        self.budget.set(left.unwrap_or(0));
        left.map(drop).ok_or(MessageError::Repeated)
    }
}

/// The position after the pointer at `at`, moved by the signed offset in it, in words.
fn offset(at: usize, word: u64) -> Result<usize, MessageError> {
    let [a, b, c, d, ..] = word.to_le_bytes();
    // The offset is the upper 30 bits, with sign: an arithmetic shift keeps it.
    let words = i64::from(i32::from_le_bytes([a, b, c, d]) >> 2);
    let at = i64::try_from(at)
        .ok()
        .and_then(|at| at.checked_add(8 + words * 8));
    at.and_then(|at| usize::try_from(at).ok())
        .ok_or(MessageError::Pointer)
}

/// The size of the data in bytes and the number of pointers of a structure.
fn sizes(word: u64) -> (usize, usize) {
    let [_, _, _, _, a, b, c, d] = word.to_le_bytes();
    let data = usize::from(u16::from_le_bytes([a, b]));
    (data * 8, u16::from_le_bytes([c, d]).into())
}
