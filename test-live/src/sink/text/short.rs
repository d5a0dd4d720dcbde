//! Appends short texts: most of a line is pieces of a few bytes, for which a call of `memcpy` costs more than the copy.

/// Appends `text`, a short one without a call.
#[inline]
pub(super) fn push(out: &mut Vec<u8>, text: &[u8]) {
    // Two pieces of fixed size, which overlap unless the text is as long as both.
    if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
        if text.len() <= 32 {
            push_overlapping(out, first, last, text.len());
        } else {
            out.extend_from_slice(text);
        }
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        push_overlapping(out, first, last, text.len());
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        push_overlapping(out, first, last, text.len());
    } else {
        for byte in text {
            out.push(*byte);
        }
    }
}

/// Appends a text of `length` bytes, `N` to `2 * N`, that begins with `first` and ends with `last`.
#[inline]
fn push_overlapping<const N: usize>(
    out: &mut Vec<u8>,
    first: &[u8; N],
    last: &[u8; N],
    length: usize,
) {
    let begin = out.len();
    out.extend_from_slice(first);
    out.truncate(begin + length - N);
    out.extend_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_of_any_length_are_appended_whole() {
        let text: Vec<u8> = (0..100).collect();
        for length in 0..text.len() {
            let mut out = b"x".to_vec();
            push(&mut out, &text[..length]);
            assert_eq!(out, [b"x", &text[..length]].concat());
        }
    }
}
