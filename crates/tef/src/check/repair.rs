//! The repair of a line that is not valid as it came. This is rare, so that it may take its time:
//! but not more of it for each repair than for the first.

use std::ops::Range;

use super::{Checked, Repairs};
use crate::json::{ObjectVisitor, code_unit, scan_object};

/// Copies the line, with what has been repaired, as far as it has been scanned.
struct Repair<'a> {
    line: &'a [u8],
    out: Vec<u8>,
    /// Number of bytes of the line that are in `out`.
    copied: usize,
    repairs: Repairs,
}

impl Repair<'_> {
    fn copy_to(&mut self, end: usize) {
        let part = self.line.get(self.copied..end).unwrap_or_default();
        self.out.extend_from_slice(part);
        self.copied = end;
    }
}

impl ObjectVisitor for Repair<'_> {
    fn member(&mut self, _: Range<usize>, _: Range<usize>) {}

    fn missing_value(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let end = at + not_finite(bytes.get(at..)?)?;
        self.copy_to(at);
        self.out.push(b'"');
        self.copy_to(end);
        self.out.push(b'"');
        self.repairs.not_finite += 1;
        Some(end)
    }
}

/// The length of the word that `printf` and its like write for a number that is not finite, if
/// `bytes` begin with one.
fn not_finite(bytes: &[u8]) -> Option<usize> {
    let signs = usize::from(matches!(bytes.first()?, b'-' | b'+'));
    let word = bytes.get(signs..)?;
    let length = word.iter().take_while(|byte| byte.is_ascii_alphabetic());
    let word = word.get(..length.count())?;
    let known = ["nan", "inf", "infinity"];
    let is_known = known
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    is_known.then_some(signs + word.len())
}

/// Repairs a line. The fast scan knows no more than that something may be wrong with it.
pub(super) fn repair_line(line: &[u8]) -> Checked<'static> {
    let mut repairs = Repairs::default();
    let line = match line.strip_suffix(b",").map(<[u8]>::trim_ascii_end) {
        Some(before) if before.ends_with(b"}") => {
            repairs.commas = 1;
            before
        }
        _ => line,
    };
    let mut repair = Repair {
        line,
        out: Vec::with_capacity(line.len() + 16),
        copied: 0,
        repairs,
    };
    // Without a repair the scan fails at the same place: the reason is that of the line.
    let surrogates = match scan_object(line, &mut repair) {
        Ok(surrogates) => surrogates,
        Err(reason) => return Checked::Rejected(reason),
    };
    repair.copy_to(line.len());
    let Repair {
        mut out,
        mut repairs,
        ..
    } = repair;
    // After the scan, which only says that there are some.
    if surrogates {
        repairs.surrogates = replace_lone_surrogates(&mut out);
    }
    let text = String::from_utf8(out).unwrap_or_else(|error| {
        let invalid = error.as_bytes().utf8_chunks();
        let invalid = invalid.filter(|chunk| !chunk.invalid().is_empty());
        repairs.not_utf8 = invalid.count() as u64;
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    Checked::Repaired(text, repairs)
}

/// Replaces lone surrogates in text that is JSON, and so has a backslash only where an escape
/// begins. Returns how many.
fn replace_lone_surrogates(text: &mut [u8]) -> u64 {
    let mut replaced = 0;
    let mut at = 0;
    let next = |text: &[u8], at: usize| memchr::memchr(b'\\', text.get(at..)?).map(|off| at + off);
    while let Some(escape) = next(text, at) {
        let is_surrogate =
            |at, range: Range<u16>| code_unit(text, at).is_some_and(|unit| range.contains(&unit));
        let (high, low) = (0xD800..0xDC00, 0xDC00..0xE000);
        if is_surrogate(escape, high.clone()) && is_surrogate(escape + 6, low.clone()) {
            at = escape + 12;
        } else if is_surrogate(escape, high.start..low.end) {
            // As long as what it replaces, so that nothing moves.
            if let Some(place) = text.get_mut(escape..escape + 6) {
                place.copy_from_slice(b"\\ufffd");
            }
            replaced += 1;
            at = escape + 6;
        } else {
            at = escape + 2;
        }
    }
    replaced
}
