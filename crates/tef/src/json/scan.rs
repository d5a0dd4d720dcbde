//! The scan of one object, from its first brace to its last.

use std::ops::Range;

use super::error::{Fault, MAX_DEPTH, Reason};
use super::token::{name as name_of, number, peek, skip_blanks, string, unexpected, word};

/// A visitor of the members of an object.
pub(crate) trait ObjectVisitor {
    /// Visits a member of the outermost object: where its name is, quotation marks included, and
    /// its value.
    fn member(&mut self, name: Range<usize>, value: Range<usize>);

    /// Called where a value must be and none is. A visitor that can repair that returns where to
    /// continue.
    fn missing_value(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let _ = (bytes, at);
        None
    }
}

/// The visitor that looks at nothing.
impl ObjectVisitor for () {
    #[inline]
    fn member(&mut self, _: Range<usize>, _: Range<usize>) {}
}

/// The objects and arrays around a token.
struct Nesting {
    /// Whether the innermost is an object; else it is an array.
    is_object: bool,
    /// Whether each of those around it is an object, the nearest in the lowest bit.
    outer: u128,
    depth: usize,
}

const _: () = assert!(MAX_DEPTH <= 128, "a bit for each level");

impl Nesting {
    #[inline]
    fn enter(&mut self, is_object: bool) {
        self.outer = self.outer << 1 | u128::from(self.is_object);
        self.is_object = is_object;
        self.depth += 1;
    }

    #[inline]
    fn leave(&mut self) {
        self.is_object = self.outer & 1 == 1;
        self.outer >>= 1;
        self.depth -= 1;
    }
}

/// Reads the one object that `bytes` are, blanks around it aside. Returns whether a string in it
/// has an escape of half a surrogate pair, be it alone or not. Does not check whether the bytes are
/// UTF-8.
#[inline]
pub(crate) fn scan_object(bytes: &[u8], visitor: &mut impl ObjectVisitor) -> Result<bool, Reason> {
    let at = skip_blanks(bytes, 0);
    if peek(bytes, at) != b'{' {
        return Err(unexpected(bytes, at, Fault::NoObject));
    }
    let at = skip_blanks(bytes, at + 1);
    let mut has_surrogates = false;
    let end = if peek(bytes, at) == b'}' {
        at + 1
    } else {
        scan_members(bytes, at, visitor, &mut has_surrogates)?
    };
    let end = skip_blanks(bytes, end);
    if end < bytes.len() {
        let fault = Fault::More;
        return Err(Reason { fault, at: end });
    }
    Ok(has_surrogates)
}

/// Reads the members of the outermost object, of which there is one at least. Returns where the
/// object ends.
#[inline]
fn scan_members(
    bytes: &[u8],
    mut at: usize,
    visitor: &mut impl ObjectVisitor,
    has_surrogates: &mut bool,
) -> Result<usize, Reason> {
    let mut nesting = Nesting {
        is_object: true,
        outer: 0,
        depth: 1,
    };
    let (mut name, mut value) = (0..0, 0);
    // Loops and no recursion, because a hostile line must not use up the stack.
    'name: loop {
        if peek(bytes, at) != b'"' {
            return Err(unexpected(bytes, at, Fault::Name));
        }
        let after = name_of(bytes, at + 1, has_surrogates)?;
        // Members within members are checked, but shown to nobody.
        if nesting.depth == 1 {
            name = at..after;
        }
        at = skip_blanks(bytes, after);
        if peek(bytes, at) != b':' {
            return Err(unexpected(bytes, at, Fault::Colon));
        }
        at = skip_blanks(bytes, at + 1);
        if nesting.depth == 1 {
            value = at;
        }
        'value: loop {
            at = match peek(bytes, at) {
                b'"' => string(bytes, at + 1, has_surrogates)?,
                b'0'..=b'9' => number(bytes, at)?,
                bracket @ (b'{' | b'[') => {
                    if nesting.depth == MAX_DEPTH {
                        let fault = Fault::Depth;
                        return Err(Reason { fault, at });
                    }
                    let is_object = bracket == b'{';
                    at = skip_blanks(bytes, at + 1);
                    // An empty object or array needs no level of its own.
                    if peek(bytes, at) == closing(is_object) {
                        at + 1
                    } else {
                        nesting.enter(is_object);
                        if is_object {
                            continue 'name;
                        }
                        continue 'value;
                    }
                }
                other => {
                    let end = match other {
                        b'-' => number(bytes, at),
                        _ => word(bytes, at),
                    };
                    // The visitor is asked in this case only: a valid line pays nothing for
                    // repairs.
                    end.or_else(|reason| visitor.missing_value(bytes, at).ok_or(reason))?
                }
            };
            loop {
                if nesting.depth == 1 {
                    visitor.member(name.clone(), value..at);
                }
                at = skip_blanks(bytes, at);
                let byte = peek(bytes, at);
                if byte == b',' {
                    at = skip_blanks(bytes, at + 1);
                    if nesting.is_object {
                        continue 'name;
                    }
                    continue 'value;
                }
                if byte != closing(nesting.is_object) {
                    return Err(unexpected(bytes, at, Fault::Comma));
                }
                at += 1;
                if nesting.depth == 1 {
                    return Ok(at);
                }
                nesting.leave();
            }
        }
    }
}

#[inline]
fn closing(is_object: bool) -> u8 {
    if is_object { b'}' } else { b']' }
}
