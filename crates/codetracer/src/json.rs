//! Cuts a growing JSON array, or lines of JSON, into elements.
//!
//! The splitter finds the end of an element by its brackets and quotation marks; the parser of the
//! element checks that it is valid JSON. Commas and white space between elements are skipped, so
//! that elements may be cut anywhere when they arrive.

use std::ops::Range;

use memchr::memchr3;

/// How elements are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One array, `[e,e,...]`, which ends at its bracket.
    Array,
    /// Elements on lines; also `[e,` and `]`. An element ends at the end of its line at the latest,
    /// so that a malformed one does not take others with it.
    Lines,
}

/// The reason why something between two separators is no element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElementError {
    #[error("the element is incomplete")]
    Incomplete,
    #[error("the element is longer than {0} bytes")]
    TooLong(usize),
}

/// Collects bytes and cuts elements out of them. Memory is bounded by the longest element and the
/// bytes of one push.
#[derive(Debug)]
pub(crate) struct ElementSplitter {
    layout: Layout,
    max_element_bytes: usize,
    buffer: Vec<u8>,
    /// Begin of the bytes that are needed: of the element, if one has begun.
    begin: usize,
    /// End of the bytes that have been looked at.
    scanned: usize,
    /// The open brackets of the element.
    depth: u64,
    is_in_element: bool,
    is_in_string: bool,
    /// Whether the element is too long: its bytes are not kept.
    is_too_long: bool,
    is_array_open: bool,
    is_complete: bool,
    has_ended: bool,
}

impl ElementSplitter {
    pub(crate) fn new(layout: Layout, max_element_bytes: usize) -> Self {
        Self {
            layout,
            max_element_bytes,
            buffer: Vec::new(),
            begin: 0,
            scanned: 0,
            depth: 0,
            is_in_element: false,
            is_in_string: false,
            is_too_long: false,
            is_array_open: false,
            is_complete: false,
            has_ended: false,
        }
    }

    /// Adds bytes of the input.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.begin);
        self.scanned -= self.begin;
        self.begin = 0;
        if self.buffer.is_empty() {
            // Memory of an element that was longer than usual is released.
            self.buffer
                .shrink_to(bytes.len().max(self.max_element_bytes / 64));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Says that the input has ended.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether the array has been closed.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Drops the element that is not complete yet; its end is still looked for.
    pub(crate) fn drop_element(&mut self) {
        self.is_too_long = self.is_in_element;
        self.discard_if_too_long();
    }

    /// Bytes of the element that is not complete yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.begin
    }

    /// The bytes of an element.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// Finds the next element; valid until the next [`push`](Self::push). `None` if more bytes are
    /// needed, or there are no more elements.
    pub(crate) fn next_element(&mut self) -> Option<Result<Range<usize>, ElementError>> {
        if !self.is_in_element && !self.skip_separators() {
            return None;
        }
        while let Some(byte) = self.next_byte() {
            let has_ended = if self.is_in_string {
                match byte {
                    b'"' => {
                        self.is_in_string = false;
                        self.depth == 0
                    }
                    b'\\' => {
                        if self.scanned == self.buffer.len() && !self.has_ended {
                            // The escaped byte is looked at together with the backslash.
                            self.scanned -= 1;
                            break;
                        }
                        // At the end of the input nothing may follow the backslash.
                        self.scanned = (self.scanned + 1).min(self.buffer.len());
                        false
                    }
                    // Not valid in a string: the next element may be on the next line.
                    _ => return Some(self.end_element(Some(ElementError::Incomplete))),
                }
            } else {
                match byte {
                    b'"' => {
                        self.is_in_string = true;
                        false
                    }
                    b'{' | b'[' => {
                        self.depth += 1;
                        false
                    }
                    b'}' | b']' if self.depth > 0 => {
                        self.depth -= 1;
                        self.depth == 0
                    }
                    b'\n' if self.layout == Layout::Lines => {
                        let fault = (self.depth > 0).then_some(ElementError::Incomplete);
                        return Some(self.end_element(fault));
                    }
                    // The end of a number or a word, which is no element, but as long as it seems.
                    b',' | b' ' | b'\t' | b'\n' | b'\r' | b'}' | b']' if self.depth == 0 => {
                        // Not taken, because it may close the array.
                        self.scanned -= usize::from(byte == b']');
                        return Some(self.end_element(None));
                    }
                    _ => false,
                }
            };
            if has_ended {
                return Some(self.end_element(None));
            }
        }
        self.discard_if_too_long();
        if self.has_ended && self.is_in_element {
            return Some(self.end_element(Some(ElementError::Incomplete)));
        }
        None
    }

    /// Moves after the next byte that matters, and returns it.
    fn next_byte(&mut self) -> Option<u8> {
        let rest = self.buffer.get(self.scanned..)?;
        if self.is_in_string {
            // Nothing else changes a string, so that its bytes need not be looked at one by one.
            let Some(length) = memchr3(b'"', b'\\', b'\n', rest) else {
                self.scanned = self.buffer.len();
                return None;
            };
            self.scanned += length + 1;
            return rest.get(length).copied();
        }
        self.scanned += usize::from(!rest.is_empty());
        rest.first().copied()
    }

    /// Moves to the begin of the next element. Returns false if there is none yet.
    fn skip_separators(&mut self) -> bool {
        while let Some(byte) = self.buffer.get(self.scanned) {
            let is_skipped = match byte {
                // What follows the array is no part of the recording.
                _ if self.is_complete => true,
                b' ' | b'\t' | b'\n' | b'\r' | b',' => true,
                b'[' | b']' if self.layout == Layout::Lines => true,
                b'[' if !self.is_array_open => {
                    self.is_array_open = true;
                    true
                }
                b']' => {
                    self.is_complete = true;
                    true
                }
                _ => false,
            };
            if !is_skipped {
                self.begin = self.scanned;
                self.is_in_element = true;
                return true;
            }
            self.scanned += 1;
        }
        self.begin = self.scanned;
        false
    }

    /// Ends the element after the last byte that was looked at.
    fn end_element(&mut self, fault: Option<ElementError>) -> Result<Range<usize>, ElementError> {
        self.discard_if_too_long();
        let range = self.begin..self.scanned;
        let is_too_long = std::mem::take(&mut self.is_too_long);
        self.begin = self.scanned;
        self.depth = 0;
        self.is_in_element = false;
        self.is_in_string = false;
        if is_too_long {
            return Err(ElementError::TooLong(self.max_element_bytes));
        }
        fault.map_or(Ok(range), Err)
    }

    fn discard_if_too_long(&mut self) {
        if self.scanned - self.begin > self.max_element_bytes {
            self.is_too_long = true;
        }
        if self.is_too_long {
            // Its bytes are dropped, but its end is still looked for: the next element begins
            // there.
            self.begin = self.scanned;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements of a text that arrives in these pieces.
    fn split<'a>(
        layout: Layout,
        max: usize,
        pieces: impl IntoIterator<Item = &'a str>,
    ) -> (Vec<Result<String, ElementError>>, bool) {
        let mut splitter = ElementSplitter::new(layout, max);
        let mut all = Vec::new();
        let mut take = |splitter: &mut ElementSplitter| {
            while let Some(element) = splitter.next_element() {
                let text = |range| String::from_utf8(splitter.bytes(range).to_vec()).unwrap();
                all.push(element.map(text));
            }
        };
        for piece in pieces {
            splitter.push(piece.as_bytes());
            take(&mut splitter);
        }
        splitter.end();
        take(&mut splitter);
        (all, splitter.is_complete())
    }

    const ARRAY: &str = "[ {\"a\":\"}\\\"]\"} ,\n\"Drop\\\\\",{\"b\":[\n{},[]]}\n]\n";

    #[test]
    fn elements_of_an_array_may_be_cut_at_any_byte() {
        let whole = split(Layout::Array, 100, [ARRAY]);
        let want = ["{\"a\":\"}\\\"]\"}", "\"Drop\\\\\"", "{\"b\":[\n{},[]]}"];
        assert_eq!(whole, (want.map(|text| Ok(text.to_owned())).to_vec(), true));
        for cut in 0..ARRAY.len() {
            let (first, second) = ARRAY.split_at(cut);
            assert_eq!(split(Layout::Array, 100, [first, second]), whole, "{cut}");
        }
        let bytes: Vec<_> = ARRAY.chars().map(String::from).collect();
        assert_eq!(
            split(Layout::Array, 100, bytes.iter().map(|byte| &**byte)),
            whole
        );
    }

    #[test]
    fn an_open_array_has_all_elements_but_the_one_that_is_cut() {
        let (elements, is_complete) = split(Layout::Array, 100, ["[{},{},{\"a\""]);
        assert!(!is_complete);
        assert_eq!(elements.len(), 3);
        assert_eq!(elements[2], Err(ElementError::Incomplete));
    }

    #[test]
    fn a_malformed_line_does_not_take_the_next_one_with_it() {
        let text = "{\"a\":{\n{\"b\":1}\n{\"c\":\"\n[{\"d\":1},\n{\"e\":1}]\n5\n\"f\"";
        let (elements, _) = split(Layout::Lines, 100, [text]);
        let good = |text: &str| Ok(text.to_owned());
        let bad = Err(ElementError::Incomplete);
        let want = [
            bad.clone(),
            good("{\"b\":1}"),
            bad,
            good("{\"d\":1}"),
            good("{\"e\":1}"),
            good("5\n"),
            good("\"f\""),
        ];
        assert_eq!(elements, want);
    }

    #[test]
    fn an_element_that_is_too_long_is_dropped_and_takes_no_memory() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1000));
        let text = format!("[{{}},{long},{{\"b\":1}}]");
        for layout in [Layout::Array, Layout::Lines] {
            let mut splitter = ElementSplitter::new(layout, 100);
            let mut all = Vec::new();
            for piece in text.as_bytes().chunks(10) {
                splitter.push(piece);
                while let Some(element) = splitter.next_element() {
                    all.push(element.map(|range| range.len()));
                }
                assert!(splitter.pending_bytes() <= 110);
            }
            assert_eq!(all, [Ok(2), Err(ElementError::TooLong(100)), Ok(7)]);
        }
    }
}
