//! Fields as text, the way `babeltrace2`'s `sink.text.pretty` writes them (version 2.0.4; BLOBs and
//! bit maps 2.1).

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Base, Integer, Labels};
use viewer::json_text::hex;

use super::line::{Line, Literal, line_buffer};
use super::number;
use super::style::Style;

/// Writes fields to a line.
pub(super) struct Values<'l, 'a> {
    line: &'l mut Line<'a>,
    style: &'l Style,
    /// Whether names are shown.
    named: bool,
    /// Whether no scope, member or element precedes the next one.
    first: bool,
}

/// The places where names are shown. (`--names`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    /// Whether the fields of the payload have names.
    pub payload: bool,
    /// Whether the fields of all contexts have names.
    pub context: bool,
    /// Whether the scopes themselves have names.
    pub scope: bool,
    /// Whether the parts of the line before the fields have names.
    pub header: bool,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            payload: true,
            context: true,
            scope: false,
            header: false,
        }
    }
}

impl<'l, 'a> Values<'l, 'a> {
    pub(super) fn new(line: &'l mut Line<'a>, style: &'l Style, named: bool) -> Self {
        Self {
            line,
            style,
            named,
            first: true,
        }
    }

    /// A number of an enumeration with its labels.
    pub(super) fn enumeration(class: &Integer, number: u64, style: &Style) -> Literal {
        let (mut buffer, mut text) = (line_buffer(), Vec::new());
        let mut line = Line::new(&mut buffer, &mut text);
        let mut values = Values::new(&mut line, style, false);
        let format = NumberFormat {
            bits: class.bits,
            base: class.base,
            labels: class.labels.as_deref(),
        };
        if class.signed {
            values.signed(number.cast_signed(), format);
        } else {
            values.unsigned(number, format);
        }
        line.out();
        text.into()
    }

    #[inline(always)]
    fn push_text(&mut self, text: &str) {
        self.line.text(text.as_bytes());
    }

    #[inline(always)]
    fn push(&mut self, byte: u8) {
        self.line.copy(&[byte], 1);
    }

    /// Begins or ends a colour. Without colours, which is usual, there is nothing to write.
    #[inline]
    fn paint(&mut self, colour: &'static str) {
        if !colour.is_empty() {
            self.push_text(colour);
        }
    }

    #[inline]
    fn separate(&mut self) {
        self.push_text(if self.first { " " } else { ", " });
        self.first = false;
    }

    /// The labels of an enumeration, before its number.
    fn labels(&mut self, labels: &Labels, value: i128) {
        self.push_text("( ");
        let mut labels = labels.of(value).peekable();
        let any = labels.peek().is_some();
        self.names(labels);
        if !any {
            self.paint(self.style.unknown);
            self.push_text("<unknown>");
            self.paint(self.style.end);
        }
        self.push_text(" : container = ");
    }

    /// The names of labels or flags.
    fn names<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        for (number, name) in names.into_iter().enumerate() {
            if number > 0 {
                self.push_text(", ");
            }
            self.paint(self.style.label);
            self.push(b'"');
            escape(self.line, name.as_bytes());
            self.push(b'"');
            self.paint(self.style.end);
        }
    }
}

impl Visitor for Values<'_, '_> {
    fn begin_structure(&mut self) {
        self.push(b'{');
        self.first = true;
    }

    #[inline]
    fn member(&mut self, name: &str) {
        self.separate();
        if self.named {
            self.paint(self.style.name);
            self.push_text(name);
            self.paint(self.style.end);
            self.push_text(" = ");
        }
    }

    fn end_structure(&mut self) {
        self.push_text(" }");
        self.first = false;
    }

    fn begin_array(&mut self, _length: u64) {
        self.push(b'[');
        self.first = true;
    }

    #[inline]
    fn element(&mut self, index: u64) {
        self.separate();
        if self.named {
            self.push(b'[');
            self.line.decimal(index);
            self.push_text("] = ");
        }
    }

    fn end_array(&mut self) {
        self.push_text(" ]");
        self.first = false;
    }

    fn begin_variant(&mut self, _option: Option<&str>) {
        self.push_text("{ ");
    }

    fn end_variant(&mut self) {
        self.push_text(" }");
    }

    fn begin_optional(&mut self, present: bool) {
        // babeltrace2 shows an optional field as a variant has its value, in braces.
        self.push_text(if present { "{ " } else { "<none>" });
        self.first = !present;
    }

    fn end_optional(&mut self) {
        if !self.first {
            self.push_text(" }");
        }
        self.first = false;
    }

    #[inline]
    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        if let Some(labels) = format.labels {
            self.labels(labels, i128::from(value));
        }
        self.paint(self.style.number);
        match format.base {
            Base::Decimal => self.line.decimal(value),
            Base::Hexadecimal => self.line.hexadecimal(value),
            Base::Octal => number::octal(self.line.out(), value),
            Base::Binary => number::binary(self.line.out(), value, format.bits),
        }
        self.paint(self.style.end);
        if format.labels.is_some() {
            self.push_text(" )");
        }
    }

    #[inline]
    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        if let Some(labels) = format.labels {
            self.labels(labels, i128::from(value));
        }
        self.paint(self.style.number);
        let bits = value.cast_unsigned();
        match format.base {
            Base::Decimal => self.line.signed_decimal(value),
            Base::Hexadecimal => {
                self.line.hexadecimal(number::low(bits, format.bits, 4));
            }
            Base::Octal => number::octal(self.line.out(), number::low(bits, format.bits, 3)),
            Base::Binary => number::binary(self.line.out(), bits, format.bits),
        }
        self.paint(self.style.end);
        if format.labels.is_some() {
            self.push_text(" )");
        }
    }

    fn float(&mut self, value: f64, _bits: u8) {
        self.paint(self.style.number);
        self.line.general(value);
        self.paint(self.style.end);
    }

    fn boolean(&mut self, value: bool) {
        self.paint(self.style.number);
        self.push_text(if value { "true" } else { "false" });
        self.paint(self.style.end);
    }

    fn bit_array(&mut self, value: u64, _bits: u8, flags: Option<&Labels>) {
        self.paint(self.style.number);
        self.line.hexadecimal(value);
        self.paint(self.style.end);
        let mut flags: Vec<&str> =
            flags.map_or_else(Vec::new, |flags| flags.of_bits(value).collect());
        if !flags.is_empty() {
            // babeltrace2 shows flags in the order of their names.
            flags.sort_unstable();
            self.push_text(" { ");
            self.names(flags);
            self.push_text(" }");
        }
    }

    #[inline]
    fn text(&mut self, bytes: &[u8]) {
        self.paint(self.style.text);
        self.push(b'"');
        escape(self.line, bytes);
        self.push(b'"');
        self.paint(self.style.end);
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        self.push_text("{ ");
        for byte in bytes {
            hex(&[*byte], self.line.out());
            self.push(b' ');
        }
        self.push(b'}');
    }
}

/// The escape of a byte in a text: 0 for none, 1 for `\x` and two digits, else `\` and this.
const fn escape_of(byte: u8) -> u8 {
    match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0B => b'v',
        0x0C => b'f',
        b'\r' => b'r',
        0x1B => b'e',
        b'\\' | b'\'' | b'"' | b'?' => byte,
        0..0x20 | 0x7F => 1,
        _ => 0,
    }
}

/// The escapes of all bytes.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut rest: &mut [u8] = &mut escapes;
    let mut byte = 0_u8;
    while let Some((first, behind)) = rest.split_first_mut() {
        *first = escape_of(byte);
        (rest, byte) = (behind, byte.wrapping_add(1));
    }
    escapes
};

/// The [escape](escape_of) of a byte, from the table.
#[inline]
fn escape_in_table(byte: u8) -> u8 {
    ESCAPES.get(usize::from(byte)).copied().unwrap_or(1)
}

/// Appends `text` with what is not printable replaced.
#[inline(always)]
pub(super) fn escape(line: &mut Line<'_>, text: &[u8]) {
    if is_plain(text) {
        line.text(text);
    } else {
        escape_bytes(line.out(), text);
    }
}

/// Whether no byte has an escape. Looks at sixteen bytes at a time.
#[inline(always)]
fn is_plain(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some((sixteen, after)) = rest.split_first_chunk::<16>() {
        if has_escape(sixteen) {
            return false;
        }
        rest = after;
    }
    match text.last_chunk::<16>() {
        _ if rest.is_empty() => true,
        Some(last) => !has_escape(last),
        None => match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
            // Both are looked at, because a branch takes longer.
            (Some(first), Some(last)) => !(has_escape(first) | has_escape(last)),
            _ => !rest.iter().any(|byte| escape_in_table(*byte) != 0),
        },
    }
}

/// Whether any byte has an escape: comparisons only, so that the compiler makes vector instructions
/// of them.
#[inline(always)]
fn has_escape<const N: usize>(bytes: &[u8; N]) -> bool {
    let mut any = 0_u8;
    for byte in bytes {
        let is_odd = (*byte < 0x20)
            | (*byte == 0x7F)
            | (*byte == b'\\')
            | (*byte == b'\'')
            | (*byte == b'"')
            | (*byte == b'?');
        any |= u8::from(is_odd);
    }
    any != 0
}

/// Appends `text` byte by byte, with what is not printable replaced.
#[cold]
fn escape_bytes(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(place) = rest.iter().position(|byte| escape_in_table(*byte) != 0) {
        let (plain, odd) = rest.split_at(place);
        out.extend_from_slice(plain);
        let Some((byte, after)) = odd.split_first() else {
            return;
        };
        match escape_in_table(*byte) {
            1 => {
                out.extend_from_slice(b"\\x");
                hex(&[*byte], out);
            }
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use ctf::model::Label;

    use super::super::line::written;
    use super::*;

    fn shown(visit: impl FnOnce(&mut Values<'_, '_>)) -> String {
        let style = Style::plain();
        let text = written(|line| visit(&mut Values::new(line, &style, true)));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn nested_values_in_text_are_separated_by_commas() {
        let plain = NumberFormat {
            bits: 8,
            base: Base::Decimal,
            labels: None,
        };
        let text = shown(|values| {
            values.begin_structure();
            values.member("a");
            values.begin_array(2);
            for index in 0..2 {
                values.element(index);
                values.begin_structure();
                values.member("x");
                values.unsigned(index, plain);
                values.end_structure();
            }
            values.end_array();
            values.member("v");
            values.begin_variant(Some("o"));
            values.text(b"t");
            values.end_variant();
            values.member("none");
            values.begin_optional(false);
            values.end_optional();
            values.member("some");
            values.begin_optional(true);
            values.signed(-1, plain);
            values.end_optional();
            values.member("empty");
            values.begin_structure();
            values.end_structure();
            values.end_structure();
        });
        assert_eq!(
            text,
            "{ a = [ [0] = { x = 0 }, [1] = { x = 1 } ], v = { \"t\" }, none = <none>, some = { -1 }, empty = { } }"
        );
    }

    #[test]
    fn blobs_and_bit_maps_in_text_have_hexadecimal_bytes_and_names_of_flags() {
        let flag = |name: &str, bit| Label {
            name: name.into(),
            ranges: vec![(bit, bit)],
        };
        let flags = Labels::new(vec![flag("write", 0), flag("read", 4), flag("exec", 5)]);
        let text = shown(|values| {
            values.begin_structure();
            values.member("blob");
            values.blob(&[0xAA, 0x0B], "image/png");
            values.member("empty");
            values.blob(&[], "image/png");
            values.member("map");
            values.bit_array(0x11, 8, Some(&flags));
            values.member("none");
            values.bit_array(0x80, 8, Some(&flags));
            values.member("array");
            values.bit_array(0xAB, 8, None);
            values.end_structure();
        });
        assert_eq!(
            text,
            "{ blob = { aa 0b }, empty = { }, map = 0x11 { \"read\", \"write\" }, none = 0x80, array = 0xAB }"
        );
    }

    #[test]
    fn unprintable_characters_in_text_are_escaped() {
        let out = written(|line| escape(line, b"a\x01\x7f\x1b\n\\\"'?\xc3\xa9z"));
        assert_eq!(out, b"a\\x01\\x7f\\e\\n\\\\\\\"\\'\\?\xc3\xa9z");
    }

    #[test]
    fn each_byte_is_escaped_wherever_it_is_in_a_text() {
        for byte in 0..=255_u8 {
            let mut want = Vec::new();
            escape_bytes(&mut want, &[byte]);
            assert_eq!(is_plain(&[byte]), want == [byte]);
            for length in 1..40 {
                for place in 0..length {
                    let mut text = vec![b'x'; length];
                    text[place] = byte;
                    let out = written(|line| escape(line, &text));
                    let (before, behind) = (&text[..place], &text[place + 1..]);
                    assert_eq!(out, [before, &want, behind].concat());
                }
            }
        }
    }

    #[test]
    fn an_optional_structure_in_text_has_its_closing_brace() {
        let text = shown(|values| {
            values.begin_optional(true);
            values.begin_structure();
            values.end_structure();
            values.end_optional();
        });
        assert_eq!(text, "{ { } }");
    }
}
