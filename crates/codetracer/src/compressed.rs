//! `trace.bin` of version 1: CBOR items in Zstandard frames, with a seek table at the end.

use thiserror::Error;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::cbor::{CborError, CborItem, CborReader};

/// Magic number of the skippable frame that holds the seek table.
const SEEK_TABLE: [u8; 4] = [0x5e, 0x2a, 0x4d, 0x18];

/// Largest window of a frame as a power of two: what the library takes without being asked. Bounds
/// the memory.
const MAX_WINDOW_LOG: u32 = 27;

/// Bytes that are decompressed at once.
const OUTPUT_BYTES: usize = 64 << 10;

/// The reason why nothing more can be read.
#[derive(Debug, Error)]
pub(crate) enum CompressedError {
    #[error("cannot decompress: {0}")]
    Zstandard(#[from] std::io::Error),
    #[error(transparent)]
    Cbor(#[from] CborError),
}

/// Decompresses only as much as is asked for, so that memory is bounded whatever the compression
/// ratio is.
pub(crate) struct CompressedReader {
    decoder: Decoder<'static>,
    items: CborReader,
    input: Vec<u8>,
    at: usize,
    is_between_frames: bool,
    /// Whether the output of the last call filled its buffer: there may be more without further
    /// input.
    has_more_output: bool,
    is_complete: bool,
    output: Vec<u8>,
}

impl CompressedReader {
    pub(crate) fn new(max_json_bytes: usize) -> Result<Self, CompressedError> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
        Ok(Self {
            decoder,
            items: CborReader::new(max_json_bytes),
            input: Vec::new(),
            at: 0,
            is_between_frames: true,
            has_more_output: false,
            is_complete: false,
            output: vec![0; OUTPUT_BYTES],
        })
    }

    /// Adds bytes of the input.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Once for each push: a frame may be read in many steps.
        self.input.drain(..self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Whether the seek table has been found, which is after all items.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether the input ends within an item or a frame.
    pub(crate) fn is_cut(&self) -> bool {
        !self.is_complete || self.items.has_partial_item()
    }

    /// The JSON text of the last item.
    pub(crate) fn json(&self) -> &[u8] {
        self.items.json()
    }

    /// Reads the next item. `None` if more bytes are needed, or there are no more items.
    pub(crate) fn next_item(&mut self) -> Result<Option<CborItem>, CompressedError> {
        loop {
            if let Some(item) = self.items.next_item()? {
                return Ok(Some(item));
            }
            if !self.decompress()? {
                return Ok(None);
            }
        }
    }

    /// Decompresses some bytes. Returns false if more input is needed.
    fn decompress(&mut self) -> Result<bool, CompressedError> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        if self.is_between_frames {
            let Some(magic) = rest.first_chunk() else {
                return Ok(false);
            };
            // The table is in a skippable frame, which begins between two frames only.
            self.is_complete |= *magic == SEEK_TABLE;
            // The seek table holds no items: it need not be decompressed.
            if self.is_complete {
                return Ok(false);
            }
        }
        // Full output may mean that the library still holds some.
        if rest.is_empty() && !self.has_more_output {
            return Ok(false);
        }
        let mut input = InBuffer::around(rest);
        let mut output = OutBuffer::around(&mut *self.output);
        let hint = self.decoder.run(&mut input, &mut output)?;
        let (read, written) = (input.pos(), output.pos());
        // The library's hint is 0 at the end of a frame.
        self.is_between_frames = hint == 0;
        self.has_more_output = written == self.output.len();
        self.at += read;
        self.items
            .push(self.output.get(..written).unwrap_or_default());
        Ok(read > 0 || written > 0)
    }
}

impl std::fmt::Debug for CompressedReader {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("CompressedReader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = include_bytes!("../tests/data/every-event.v1.bin");

    /// The items of the body of a file that arrives in pieces of a length, and whether it is
    /// complete.
    fn items(body: &[u8], length: usize) -> Result<(Vec<String>, bool), CompressedError> {
        let mut reader = CompressedReader::new(1000)?;
        let mut all = Vec::new();
        for piece in body.chunks(length) {
            reader.push(piece);
            while let Some(item) = reader.next_item()? {
                let json = String::from_utf8(reader.json().to_vec()).unwrap();
                all.push(if item == CborItem::Json {
                    json
                } else {
                    format!("{item:?}")
                });
            }
        }
        Ok((all, !reader.is_cut()))
    }

    #[test]
    fn items_of_a_file_that_grows_are_those_of_the_whole_file() {
        let json = include_str!("../tests/data/every-event.jsonl");
        let want: Vec<_> = json.lines().map(str::to_owned).collect();
        for length in [1, 10, FILE.len()] {
            assert_eq!(items(&FILE[8..], length).unwrap(), (want.clone(), true));
        }
        for cut in 8..FILE.len() {
            let (all, is_complete) = items(&FILE[8..cut], 100).unwrap();
            assert!(want.starts_with(&all));
            assert!(!is_complete || all == want);
        }
    }

    #[test]
    fn damaged_frames_are_refused_without_a_panic() {
        for at in 8..FILE.len() {
            for bit in [0x01, 0x80] {
                let mut damaged = FILE[8..].to_vec();
                damaged[at - 8] ^= bit;
                drop(items(&damaged, 64));
            }
        }
    }

    #[test]
    fn frames_that_expand_much_are_read_in_bounded_memory() {
        let mut cbor = vec![0x7a, 0, 0, 3, 0xe8];
        cbor.resize(cbor.len() + 1000, b'x');
        let body: Vec<_> = cbor
            .iter()
            .copied()
            .cycle()
            .take(cbor.len() * 10_000)
            .collect();
        let body = zstd::encode_all(&*body, 3).unwrap();
        assert!(body.len() < 20_000);
        let mut reader = CompressedReader::new(2000).unwrap();
        reader.push(&body);
        let mut count = 0;
        while reader.next_item().unwrap().is_some() {
            count += 1;
            assert!(reader.items.buffered_bytes() <= 2 * OUTPUT_BYTES);
        }
        assert_eq!(count, 10_000);
    }
}
