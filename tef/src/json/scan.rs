//! One object, from its first brace to its last.

use std::ops::Range;

use super::token::{name as name_of, number, peek, skip_blanks, string, unexpected, word};
use crate::check::{Fault, MAX_DEPTH, Reason};

/// Who wants to know what is in the object.
pub(crate) trait Listener {
    /// A member of the outermost object: where its name is, quotation marks included, and its value.
    fn member(&mut self, name: Range<usize>, value: Range<usize>);

    /// What is there is no value. One that can do something about it says where to go on.
    fn no_value(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let _ = (bytes, at);
        None
    }
}

/// One that wants nothing.
impl Listener for () {
    #[inline]
    fn member(&mut self, _: Range<usize>, _: Range<usize>) {}
}

/// What is open around a token.
struct Open {
    /// Whether the innermost is an object; else it is an array.
    object: bool,
    /// The same of those around it, the nearest in the lowest bit.
    outer: u128,
    depth: usize,
}

const _: () = assert!(MAX_DEPTH <= 128, "a bit for each level");

/// Reads the one object that `bytes` are, blanks around it aside. Says whether a string in it has an
/// escape of half a surrogate pair, be it alone or not. Whether the bytes are UTF-8 is not looked at.
#[inline]
pub(crate) fn scan_object(bytes: &[u8], listener: &mut impl Listener) -> Result<bool, Reason> {
    let mut surrogates = false;
    let mut at = skip_blanks(bytes, 0);
    if peek(bytes, at) != b'{' {
        return Err(unexpected(bytes, at, Fault::NoObject));
    }
    at = skip_blanks(bytes, at + 1);
    if peek(bytes, at) == b'}' {
        return end(bytes, at + 1, surrogates);
    }
    let mut open = Open {
        object: true,
        outer: 0,
        depth: 1,
    };
    let (mut name, mut value) = (0..0, 0);
    'name: loop {
        if peek(bytes, at) != b'"' {
            return Err(unexpected(bytes, at, Fault::Name));
        }
        let after = name_of(bytes, at + 1, &mut surrogates)?;
        if open.depth == 1 {
            name = at..after;
        }
        at = skip_blanks(bytes, after);
        if peek(bytes, at) != b':' {
            return Err(unexpected(bytes, at, Fault::Colon));
        }
        at = skip_blanks(bytes, at + 1);
        if open.depth == 1 {
            value = at;
        }
        'value: loop {
            at = match peek(bytes, at) {
                b'"' => string(bytes, at + 1, &mut surrogates)?,
                b'0'..=b'9' => number(bytes, at)?,
                bracket @ (b'{' | b'[') => {
                    if open.depth == MAX_DEPTH {
                        let fault = Fault::Depth;
                        return Err(Reason { fault, at });
                    }
                    let object = bracket == b'{';
                    at = skip_blanks(bytes, at + 1);
                    if peek(bytes, at) == closing(object) {
                        at + 1
                    } else {
                        open.outer = open.outer << 1 | u128::from(open.object);
                        open.object = object;
                        open.depth += 1;
                        if object {
                            continue 'name;
                        }
                        continue 'value;
                    }
                }
                other => {
                    let ends = match other {
                        b'-' => number(bytes, at),
                        _ => word(bytes, at),
                    };
                    match ends {
                        Ok(end) => end,
                        Err(reason) => listener.no_value(bytes, at).ok_or(reason)?,
                    }
                }
            };
            loop {
                if open.depth == 1 {
                    listener.member(name.clone(), value..at);
                }
                at = skip_blanks(bytes, at);
                let byte = peek(bytes, at);
                if byte == b',' {
                    at = skip_blanks(bytes, at + 1);
                    if open.object {
                        continue 'name;
                    }
                    continue 'value;
                }
                if byte != closing(open.object) {
                    return Err(unexpected(bytes, at, Fault::Comma));
                }
                at += 1;
                open.depth -= 1;
                if open.depth == 0 {
                    return end(bytes, at, surrogates);
                }
                open.object = open.outer & 1 == 1;
                open.outer >>= 1;
            }
        }
    }
}

#[inline]
fn closing(object: bool) -> u8 {
    if object { b'}' } else { b']' }
}

fn end(bytes: &[u8], at: usize, surrogates: bool) -> Result<bool, Reason> {
    let at = skip_blanks(bytes, at);
    if at < bytes.len() {
        let fault = Fault::More;
        return Err(Reason { fault, at });
    }
    Ok(surrogates)
}
